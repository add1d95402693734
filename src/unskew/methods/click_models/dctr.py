r"""Click-through rate by document: $P(c) = \rho_d$ at any position. The ranker is $\rho_d$, biased by position.

Relation to others: `pbm` in which all positions are examined equally. `naive` makes the same assumption, with a
listwise softmax.
"""

from __future__ import annotations

from unskew.lists import ClickedLists
from unskew.methods.click_models.click_model import ClickModel
from unskew.methods.click_models.parts import DocumentPart
from unskew.methods.click_models.sequences import Chances, independent
from unskew.networks.registry import Problem


class DCTR(ClickModel):
    """One click rate per document.

    Args:
        attraction: a network of `features`, a table of `ids`, or `both`; auto: features where the log has some.
        spread: standard deviation of a document's logit around that of its url and query; small: shrunk strongly.
        url_spread, query_spread: the same of urls and of queries; 0: none.
    """

    paper = "Craswell et al., WSDM 2008 (baseline)"
    assumes = "the click rate depends on the document alone"

    def __init__(
        self,
        problem: Problem,
        *,
        attraction: str = "auto",
        spread: float = 1.0,
        url_spread: float = 0.5,
        query_spread: float = 0.5,
    ):
        super().__init__()
        spreads = (spread, url_spread, query_spread)
        self.attraction = DocumentPart(problem, attraction, spreads, "attraction")

    def conditional(self, lists: ClickedLists) -> Chances:
        return independent(self.attraction.of(lists))

    marginal = conditional

    def ranking_parts(self) -> list[DocumentPart]:
        return [self.attraction]

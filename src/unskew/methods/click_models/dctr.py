r"""Click-through rate by document: $P(c) = \rho_d$ at any position. The ranker is $\rho_d$, biased by position.

Relation to others: `pbm` in which all positions are examined equally. `naive` makes the same assumption, with a
listwise softmax.
"""

from __future__ import annotations

from unskew.lists import ClickedLists
from unskew.methods.click_models.click_model import DocumentModel
from unskew.methods.click_models.sequences import Chances, independent


class DCTR(DocumentModel):
    """One click rate per document."""

    paper = "Craswell et al., WSDM 2008 (baseline)"
    assumes = "the click rate depends on the document alone"

    def conditional(self, lists: ClickedLists) -> Chances:
        return independent(self.attraction.of(lists))

    marginal = conditional

r"""Lipschitz and Bernoulli Decoupling (LBD; Chen et al., NeurIPS 2022).

Assumes $c_k(x) = r(x)\,o_k(x)$: examination depends on the position and on the document. Both factors are functions of
the same features, so a free model of both is not identified ("Unlimited"). LBD limits observation in two ways:

* Lipschitz: a penalty $\lambda \sum_k \lVert\nabla_x \hat o_k(x)\rVert_2$ on every shown document (`penalty` is
  $\lambda$), or a network whose slope cannot exceed $\beta$ (`lipschitz="certified"`).
* Bernoulli: in training $\log \hat o$ is cancelled with probability $t$ (`cancel`), so that relevance learns to explain
  clicks without it as well. The ranker is $\hat r$ alone; outside training nothing is cancelled.

The loss is the listwise softmax cross-entropy on $\log \hat r + \gamma \log \hat o_k$, $\gamma \sim$ Bernoulli$(1-t)$.
(The paper's Eq. 2 lacks the logarithm.) `cancel=0` is the paper's LBD (Lips), `penalty=0` LBD (Ber), both Unlimited.

**Scale.** The softmax leaves the scale of $\hat o$ free; theory and penalty do not: Theorems 2 to 4 need
$\hat o \le 1$, and a model that may shrink $\hat o$ as a whole escapes the penalty. So
$\hat o_k(x) = \sigma(\mathrm{logit}\,p_k + g_k(x))$, a table and a centred network (`networks.limited_observation`), of
which the penalty trains only the network.

**Cancelling.** Within a list some documents are cancelled and others are not, so the scale matters there too.
With $\hat o \le 1$ a cancelled document counts as certainly examined (`cancel_to="sure"`, as in the theorems): it then
dominates its list, and the position curve is far too flat. In the reference program the scale is free and learned. The
default takes it from the batch: a cancelled document gets the mean of $\log \hat o$ over all showings. That is
equivalent to cancelling an $\hat o$ of another scale to 1.

**Differences.** The penalty is estimated without bias from one random position of a random share of the documents
(`exact`: from all of them), and unlike the reference program's does not change with the batch size. Relevance and
observation are separate networks, clipped separately; in one trunk (`shared`, as in the reference) the penalty flattens
relevance too. The reference draws $\gamma$ for every position of a document, but only the shown one enters the loss.
The paper's second set of outputs ("variance") is used nowhere and not built here.

Relation to others: with $t = 1$ it is `naive`; with $t = 0$ and an observation that does not depend on the document it
is `two_tower`. `low_rank` limits the number of ways in which a document changes the curve, not the slope. `attention`
learns observation from a record instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from unskew.lists import ClickedLists
from unskew.methods import losses
from unskew.methods.method import Method, Stage, Terms
from unskew.networks.documents import Ranker
from unskew.networks.limited_observation import LimitedObservation, dependence_network
from unskew.networks.observation import showings, weighted_mean
from unskew.networks.registry import Problem
from unskew.options import Limits, NotNegative, Share
from unskew.processes import new_salt, uniform

SHARED_KINDS = ("tabular", "mlp", "linear")


class LBD(Method):
    r"""Listwise softmax on relevance plus an observation that depends only weakly on the document.

    Args:
        penalty: $\lambda$, weight of the gradient of observation; 0 for none. Sums over positions and documents, as in
            the paper, but on another scale than in the reference: at 0.01 observation hardly depends on the document.
        cancel: $t$, probability that the observation of a document is cancelled in training; 1 is `naive`.
        cancel_to: how a cancelled document counts, average (examined as the mean of the batch) or sure (certainly).
        share: share of the documents of a batch whose penalty is computed.
        exact: compute the penalty of all documents at all positions.
        lipschitz: penalty, or certified: no penalty, but a slope of $\hat o_k$ of at most `beta` by construction.
        beta: $\beta$, Lipschitz constant of a certified observation, with respect to the inputs of the network, as the
            penalty: transformed numbers, indicators of missing values and the vectors of categories.
        shared: one network for relevance and observation, as in the reference program.
        observation_hidden: layers of the network of observation; default: those of the ranker, none for a linear one.
        top_seen: examination probability of the average document at its best position; sets the overall scale.
        observation_rate: learning-rate factor of the position table, whose logits move one by one.

    >>> import unskew
    >>> log = unskew.simulate("world:tiny", user="coupled", sessions=4, seed=1, progress=False).log
    >>> unskew.fit("lbd", log, penalty=0.01, steps=2, progress=False).examination().shape
    (10,)
    """

    paper = "Chen et al., NeurIPS 2022"
    assumes = "examination depends on position and, smoothly, on the document; P(click) = examination × relevance"
    click_model = "softmax"

    def __init__(
        self,
        problem: Problem,
        *,
        penalty: NotNegative = 0.001,
        cancel: Annotated[float, Limits(0, 1)] = 0.1,
        cancel_to: Literal["average", "sure"] = "average",
        share: Share = 0.25,
        exact: bool = False,
        lipschitz: Literal["penalty", "certified"] = "penalty",
        beta: NotNegative | None = None,
        shared: bool = False,
        observation_hidden: Sequence[int] | None = None,
        top_seen: Annotated[float, Limits(above=0, below=1)] = 0.9,
        observation_rate: NotNegative = 10.0,
    ):
        super().__init__()
        if shared and observation_hidden is not None:
            raise ValueError("a shared network has the ranker's layers: leave out observation_hidden, or shared=True")
        if (lipschitz == "certified") != (beta is not None):
            raise ValueError(
                "lipschitz='certified' needs beta, the largest slope of observation; pass both, or neither"
            )
        if shared and beta is not None:
            raise ValueError("a shared network cannot be certified: relevance may be steep; leave out shared=True")
        self.penalty = penalty if beta is None else 0.0
        self.cancel, self.cancel_to = cancel, cancel_to
        self.share, self.exact = share, exact
        self.observation_rate = observation_rate
        self.observation = LimitedObservation(problem, top_seen)
        self.relevance = SharedRanker(problem) if shared else problem.new_ranker()
        if not shared:
            self.dependence = dependence_network(problem, observation_hidden, beta)

    def stages(self) -> list[Stage]:
        return [Stage("train", self.loss, {self.observation: self.observation_rate, self: 1.0})]

    def loss(self, lists: ClickedLists) -> Terms:
        r"""$-\sum c \log \mathrm{softmax}(\log r + \gamma \log o) + \lambda \sum \lVert\nabla_x o\rVert$."""
        log_r, outputs = self.outputs(lists)
        centre = self.observation.centre(outputs, lists)
        log_o = self.observation(outputs - centre, lists)
        if self.cancel_to == "average":
            log_o = log_o - weighted_mean(log_o, showings(lists), (0, 1))
        terms = {"clicks": losses.softmax(log_r + self.gamma(lists) * log_o, lists.clicks, lists.mask)}
        if self.penalty:
            steepness = self.observation.steepness(self.network, centre, lists, share=self.share, exact=self.exact)
            terms["penalty"] = self.penalty * steepness
        return terms

    def gamma(self, lists: ClickedLists) -> Tensor:
        r"""$\gamma$ of each document, `[batch, docs]`: in training 0 where observation is cancelled."""
        if not self.training:
            return lists.mask.to(lists.clicks)
        places = torch.arange(lists.n_docs, device=lists.mask.device)
        return (uniform(new_salt(), lists.row_keys.unsqueeze(-1), places) >= self.cancel).to(lists.clicks)

    def outputs(self, lists: ClickedLists) -> tuple[Tensor, Tensor]:
        r"""$\log \hat r$ `[batch, docs]`, and $g$ before it is centred, `[batch, docs, positions]`."""
        if isinstance(self.relevance, SharedRanker):
            both = lists.per_document(self.network)
            return both[..., 0], both[..., 1:]
        return lists.apply(self.relevance), lists.per_document(self.network)

    @property
    def network(self) -> nn.Module:
        """The network whose last outputs are those of observation at all positions."""
        return self.relevance.layers if isinstance(self.relevance, SharedRanker) else self.dependence

    def click_logits(self, lists: ClickedLists) -> Tensor:
        log_r, outputs = self.outputs(lists)
        return log_r + self.observation(outputs - self.observation.mean.value, lists)

    def examination(self) -> Tensor:
        """How much the average document, that of the mean of $g$, is examined relative to the top."""
        return self.observation.positions.curve()

    def seen(self, features: Tensor) -> Tensor:
        r"""$\hat o_k(x)$ of documents `[..., features]` at all positions, `[..., positions]`.

        At the average of all levels of bias columns. The scale is `top_seen`'s, not the log's.
        """
        return self.observation.at_all_positions(self.deviation(features))

    def deviation(self, features: Tensor) -> Tensor:
        """$g_k(x)$, examination of a document compared with the average one, in log odds, `[..., positions]`."""
        mean = self.observation.mean.value
        return self.network(features)[..., -len(mean) :] - mean

    @property
    def exempt(self) -> dict[str, str]:
        if not self.cancel and (self.exact or not self.penalty):
            return {}
        return {
            "distinct_documents_agree": "draws the documents that it penalizes: agrees in expectation",
            "padding_changes_nothing": "draws what is cancelled and what is penalized anew for every batch",
            "counts_teach_like_sessions": "cancels and penalizes row by row: both agree in expectation only",
        }


class SharedRanker(Ranker):
    """One network with 1 + positions outputs: the first is relevance, the others are observation."""

    def __init__(self, problem: Problem):
        super().__init__()
        network = problem.network
        if network.kind not in SHARED_KINDS:
            raise ValueError(f"a '{network.kind}' network cannot be shared: use {' or '.join(SHARED_KINDS)}")
        self.layers = problem.new_layers(1 + problem.n_positions, dropout=network.dropout)

    @property
    def pointwise(self) -> bool:
        return True

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:  # noqa: ARG002
        return self.layers(features)[..., 0]

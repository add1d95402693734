"""Recipe: what to train and how, by names and plain values; everything but the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from unskew.data.fitted_transforms import TRANSFORMS
from unskew.methods import METHODS, Method, hyper_parameters
from unskew.networks.registry import Network
from unskew.options import check, near, unknown_name
from unskew.training.settings import Settings

NETWORK_NAMES = {"network": "kind", **{entry.name: entry.name for entry in fields(Network) if entry.name != "kind"}}
RANKERS = ("network", "trees")
SETTING_NAMES = tuple(entry.name for entry in fields(Settings))


@dataclass(frozen=True)
class Recipe:
    """What to train and how: everything but the data."""

    method: str
    hyper_parameters: Mapping[str, Any] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)
    network: Network = field(default_factory=Network)
    transform: str = "automatic"
    ranker: str = "network"  # or "trees": boosted trees on the method's debiased targets

    def __post_init__(self) -> None:
        known = hyper_parameters(find_method(self.method))
        unknown = unknown_name(self.hyper_parameters, known)
        if unknown is not None:
            raise ValueError(_unknown(unknown, self.method))
        checked = {name: check(value, known[name].kind, name) for name, value in self.hyper_parameters.items()}
        object.__setattr__(self, "hyper_parameters", checked)
        if self.transform not in TRANSFORMS:
            raise ValueError(f"unknown feature transform '{self.transform}': choose one of {', '.join(TRANSFORMS)}")
        if self.ranker not in RANKERS:
            raise ValueError(f"unknown ranker '{self.ranker}': choose one of {', '.join(RANKERS)}")
        if self.ranker == "trees":
            check_has_curve(self.method)

    @classmethod
    def of(cls, method: str, **options: Any) -> Recipe:
        """A recipe from a method's name and any of its hyper-parameters, training settings and network sizes."""
        known = hyper_parameters(find_method(method))
        own = {name: value for name, value in options.items() if name in known}
        rest = {name: value for name, value in options.items() if name not in known}
        transform = rest.pop("transform", "automatic")
        ranker = rest.pop("ranker", "network")
        network = {NETWORK_NAMES[name]: rest.pop(name) for name in list(rest) if name in NETWORK_NAMES}
        settings = {name: rest.pop(name) for name in list(rest) if name in SETTING_NAMES}
        if rest:
            raise ValueError(_unknown(next(iter(rest)), method))
        return cls(method, own, Settings(**settings), Network(**network), transform, ranker)


def find_method(name: str) -> type[Method]:
    """The method of this name."""
    if name not in METHODS:
        raise ValueError(f"unknown method '{name}': choose one of {', '.join(METHODS)}")
    return METHODS[name]


def check_has_curve(method: str) -> None:
    """Refuse a method that learns no examination curve, and so gives no debiased targets."""
    if find_method(method).examination is Method.examination:
        raise ValueError(
            f"{method} learns no examination curve and gives no debiased targets: choose dla, two_tower, ipw or "
            "regression_em"
        )


def _unknown(name: str, method: str) -> str:
    own = list(hyper_parameters(find_method(method)))
    hint = near(name, [*own, *SETTING_NAMES, *NETWORK_NAMES, "transform", "ranker"])
    return (
        f"unknown option '{name}' for {method}{hint}; its own: {', '.join(own) or 'none'}; "
        f"of training: {', '.join(SETTING_NAMES)}; of the network: {', '.join(NETWORK_NAMES)}; and transform, ranker"
    )

"""Recipe: what to train and how, by names and plain values; everything but the data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from unskew.data.fitted_transforms import TRANSFORMS
from unskew.extensions import find, name_of
from unskew.methods import METHODS, Method, hyper_parameters
from unskew.networks.registry import BY_KIND, Network
from unskew.options import check, check_choice, near, unknown_name
from unskew.training.boosting import SETTINGS, Boosting
from unskew.training.settings import Settings

NETWORK_NAMES = {
    "network": "kind",
    **{entry.name: entry.name for entry in fields(Network) if entry.name not in ("kind", "outside")},
}
RANKERS = ("network", "trees")
TREE_NAMES = {"trees": "trees", "leaves": "leaves", "tree_rate": "learning_rate", "rows_in_leaf": "rows_in_leaf"}
TREE_TARGETS = ("scores", "clicks")
SETTING_NAMES = tuple(entry.name for entry in fields(Settings))


@dataclass(frozen=True)
class Recipe:
    """What to train and how: everything but the data.

    Pass it to `fit` instead of a name and options.

    >>> Recipe.of("dla", learning_rate=0.05).settings.learning_rate
    0.05
    """

    method: str  # or your own class of a method, which is then replaced by its name
    hyper_parameters: Mapping[str, Any] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)
    network: Network = field(default_factory=Network)
    transform: str = "automatic"
    ranker: str = "network"  # or "trees": boosted trees that use what the method learned
    boosting: Boosting = SETTINGS  # their sizes
    tree_targets: str = TREE_TARGETS[0]  # those of the method's network; or "clicks", given the method's examination
    outside: type[Method] | None = field(default=None, repr=False)  # the class, if it is not in METHODS

    def __post_init__(self) -> None:
        found = self.outside or find_method(self.method)
        object.__setattr__(self, "method", name_of(METHODS, self.method))
        object.__setattr__(self, "outside", None if found in METHODS.values() else found)
        known = hyper_parameters(found)
        unknown = unknown_name(self.hyper_parameters, known)
        if unknown is not None:
            raise ValueError(_unknown(unknown, found))
        checked = {name: check(value, known[name].kind, name) for name, value in self.hyper_parameters.items()}
        object.__setattr__(self, "hyper_parameters", checked)
        check_choice(self.transform, TRANSFORMS, "feature transform")
        check_choice(self.ranker, RANKERS, "ranker")
        check_choice(self.tree_targets, TREE_TARGETS, "kind of targets of trees")
        if self.ranker == "trees" and self.tree_targets == "clicks":
            check_has_curve(found)

    @property
    def method_class(self) -> type[Method]:
        """The class of the method."""
        return self.outside or METHODS[self.method]

    @classmethod
    def of(cls, method: str | type[Method], **options: Any) -> Recipe:
        """A recipe from a method and any of its hyper-parameters, training settings and network sizes.

        Args:
            method: its name, or a class of your own.
        """
        found = find_method(method)
        known = hyper_parameters(found)
        own = {name: value for name, value in options.items() if name in known}
        rest = with_trees({name: value for name, value in options.items() if name not in known})
        transform = rest.pop("transform", "automatic")
        ranker = rest.pop("ranker", "network")
        boosting = replace(SETTINGS, **{own: rest.pop(name) for name, own in TREE_NAMES.items() if name in rest})
        targets = rest.pop("tree_targets", TREE_TARGETS[0])
        network = {NETWORK_NAMES[name]: rest.pop(name) for name in list(rest) if name in NETWORK_NAMES}
        settings = {name: rest.pop(name) for name in list(rest) if name in SETTING_NAMES}
        if rest:
            raise ValueError(_unknown(next(iter(rest)), found))
        parts = Settings(**settings), Network(**network), transform, ranker, boosting, targets
        return cls(name_of(METHODS, method), own, *parts, found)

    def tree_options(self) -> dict[str, Any]:
        """The options of trees that differ from the defaults; none for a network."""
        if self.ranker == "network":
            return {}
        sizes = {name: getattr(self.boosting, own) for name, own in TREE_NAMES.items()}
        changed = {name: value for name, value in sizes.items() if value != getattr(SETTINGS, TREE_NAMES[name])}
        return changed | ({} if self.tree_targets == TREE_TARGETS[0] else {"tree_targets": self.tree_targets})

    def resolved(self) -> Recipe:
        """The recipe with the method's defaults written out."""
        defaults = {name: known.default for name, known in hyper_parameters(self.method_class).items()}
        return replace(self, hyper_parameters={**defaults, **self.hyper_parameters})

    def changed(self, method: str | type[Method], **options: Any) -> Recipe:
        """This recipe with some options changed."""
        if name_of(METHODS, method) != self.method:
            raise ValueError(
                f"the model to start from is {self.method}, not {name_of(METHODS, method)}: leave out the method, or "
                "train without a start"
            )
        network = {shown: getattr(self.network, name) for shown, name in NETWORK_NAMES.items()}
        if options.get("network", self.network.kind) != self.network.kind:
            network = {name: value for name, value in network.items() if name not in BY_KIND}
        settings = {name: getattr(self.settings, name) for name in SETTING_NAMES}
        kept = {**network, **settings, **self.hyper_parameters, "transform": self.transform, "ranker": self.ranker}
        kept |= self.tree_options()
        found = Recipe.of(self.outside or self.method, **{**kept, **options})
        return replace(found, network=self.network) if self.network.outside else found


def find_method(method: str | type[Method]) -> type[Method]:
    """The method of this name, or the class itself."""
    found = find("method", METHODS, method)
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise ValueError(f"{found!r} is not a method: pass a subclass of unskew.methods.Method")
    return found


def check_has_curve(method: str | type[Method]) -> None:
    """Refuse a method without an examination curve, which has no debiased targets."""
    if find_method(method).examination is Method.examination:
        raise ValueError(
            f"{name_of(METHODS, method)} learns no examination curve and gives no debiased targets: choose "
            "dla, two_tower, ipw or regression_em"
        )


def old_tree_targets(ranker: str) -> str:
    """The targets of trees in files of 0.2, which name none; of a network, those that nothing asks for."""
    return "clicks" if ranker == "trees" else TREE_TARGETS[0]


def option_names(methods: Iterable[type[Method]]) -> list[str]:
    """The options of these methods, of training and of networks."""
    own = [name for method in methods for name in hyper_parameters(method)]
    return list(
        dict.fromkeys([*own, *SETTING_NAMES, *NETWORK_NAMES, "transform", "ranker", *TREE_NAMES, "tree_targets"])
    )


def with_trees(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with `ranker="trees"` if they say so by `network="trees"` or by an option of trees."""
    asks = options.get("network") == "trees" or any(name in options for name in (*TREE_NAMES, "tree_targets"))
    if not asks:
        return dict(options)
    return {name: value for name, value in options.items() if (name, value) != ("network", "trees")} | {
        "ranker": options.get("ranker", "trees")
    }


def _unknown(name: str, method: type[Method]) -> str:
    own = list(hyper_parameters(method))
    hint = near(name, option_names([method]))
    return (
        f"unknown option '{name}' for {name_of(METHODS, method)}{hint}; options of the method: "
        f"{', '.join(own) or 'none'}; of training: {', '.join(SETTING_NAMES)}; of the network: "
        f"{', '.join(NETWORK_NAMES)}; of trees: {', '.join(TREE_NAMES)}, tree_targets; also transform, ranker"
    )

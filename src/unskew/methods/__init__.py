"""Methods: one file each, found by name in `METHODS`."""

from unskew.methods.bias.affine import Affine
from unskew.methods.bias.affine_softmax import AffineSoftmax
from unskew.methods.bias.attention import Attention
from unskew.methods.bias.cdla_ld import CDLALD
from unskew.methods.bias.dla import DLA
from unskew.methods.bias.doubly_robust import DoublyRobust
from unskew.methods.bias.hte import HTE
from unskew.methods.bias.iobm import IOBM
from unskew.methods.bias.ipw import IPW
from unskew.methods.bias.labelled import Labelled
from unskew.methods.bias.lbd import LBD
from unskew.methods.bias.low_rank import LowRank
from unskew.methods.bias.naive import Naive
from unskew.methods.bias.pair_debias import PairDebias
from unskew.methods.bias.regression_em import RegressionEM
from unskew.methods.bias.two_tower import TwoTower
from unskew.methods.bias.upe import UPE
from unskew.methods.bias.vectorization import Vectorization
from unskew.methods.bias.xpa import XPA
from unskew.methods.click_models.cascade import Cascade
from unskew.methods.click_models.ccm import CCM
from unskew.methods.click_models.dbn import DBN
from unskew.methods.click_models.dcm import DCM
from unskew.methods.click_models.dctr import DCTR
from unskew.methods.click_models.gctr import GCTR
from unskew.methods.click_models.pbm import PBM
from unskew.methods.click_models.rctr import RCTR
from unskew.methods.click_models.sdbn import SDBN
from unskew.methods.click_models.ubm import UBM
from unskew.methods.method import Method, Stage, Terms, hyper_parameters

METHODS: dict[str, type[Method]] = {
    "naive": Naive,
    "labelled": Labelled,
    "ipw": IPW,
    "doubly_robust": DoublyRobust,
    "dla": DLA,
    "regression_em": RegressionEM,
    "pair_debias": PairDebias,
    "affine": Affine,
    "two_tower": TwoTower,
    "lbd": LBD,
    "hte": HTE,
    "affine_softmax": AffineSoftmax,
    "vectorization": Vectorization,
    "cdla_ld": CDLALD,
    "xpa": XPA,
    "upe": UPE,
    "iobm": IOBM,
    "low_rank": LowRank,
    "attention": Attention,
    "gctr": GCTR,
    "rctr": RCTR,
    "dctr": DCTR,
    "pbm": PBM,
    "cascade": Cascade,
    "ubm": UBM,
    "dcm": DCM,
    "ccm": CCM,
    "dbn": DBN,
    "sdbn": SDBN,
}

__all__ = ["METHODS", "Method", "Stage", "Terms", "hyper_parameters"]

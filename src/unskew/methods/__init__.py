"""Methods: one file each, found by name in `METHODS`."""

from unskew.methods.affine import Affine
from unskew.methods.affine_softmax import AffineSoftmax
from unskew.methods.attention import Attention
from unskew.methods.cascade import Cascade
from unskew.methods.ccm import CCM
from unskew.methods.cdla_ld import CDLALD
from unskew.methods.dbn import DBN
from unskew.methods.dcm import DCM
from unskew.methods.dctr import DCTR
from unskew.methods.dla import DLA
from unskew.methods.gctr import GCTR
from unskew.methods.hte import HTE
from unskew.methods.iobm import IOBM
from unskew.methods.ipw import IPW
from unskew.methods.labelled import Labelled
from unskew.methods.lbd import LBD
from unskew.methods.low_rank import LowRank
from unskew.methods.method import Method, Stage, Terms, hyper_parameters
from unskew.methods.naive import Naive
from unskew.methods.pair_debias import PairDebias
from unskew.methods.pbm import PBM
from unskew.methods.rctr import RCTR
from unskew.methods.regression_em import RegressionEM
from unskew.methods.sdbn import SDBN
from unskew.methods.two_tower import TwoTower
from unskew.methods.ubm import UBM
from unskew.methods.upe import UPE
from unskew.methods.vectorization import Vectorization
from unskew.methods.xpa import XPA

METHODS: dict[str, type[Method]] = {
    "naive": Naive,
    "labelled": Labelled,
    "ipw": IPW,
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

"""Which networks the lens serves, and whether it computed what the network computes.

A network is known if it, and every module in it, is of exactly one of the classes named here, as it was written: a
subclass, a hook, a `forward` of its own or a parametrisation could do something else, so it is refused.
"""

import torch
from torch import Tensor, nn

from seqloom.decoders.convolutional import ConvolutionalDecoder
from seqloom.decoders.recurrent import RecurrentDecoder
from seqloom.decoders.transformer import TransformerDecoder
from seqloom.encoders.convolutional import ConvolutionalEncoder
from seqloom.encoders.recurrent import RecurrentEncoder
from seqloom.encoders.transformer import TransformerEncoder
from seqloom.errors import SeqloomError
from seqloom.models.labelling import Classifier, Features, ScalarMix, Tagger
from seqloom.models.language_models import BidirectionalLanguageModel, LanguageModel, MaskedLanguageModel
from seqloom.models.seq2seq import Seq2Seq
from seqloom.native.library import is_plain
from seqloom.nn import attention, positions
from seqloom.nn.convolution import Convolution, GatedConvolution
from seqloom.nn.dropout import Dropout
from seqloom.nn.embeddings import Narrowing, OutputLayer, SegmentEmbedding, TokenEmbedding
from seqloom.nn.feedforward import ActivationLayer, FeedForward
from seqloom.nn.headwise import ChunkedLinear, HeadwiseLinear
from seqloom.nn.multihead import CrossAttention, SelfAttention
from seqloom.nn.recurrent import ProjectedLSTM, RecurrentLayer
from seqloom.nn.scored_attention import ScoredCrossAttention, ScoredSelfAttention
from seqloom.nn.transformer import NoResidual, Residual, Stack, TransformerBlock

KNOWN: tuple[type[nn.Module], ...] = (
    *(Seq2Seq, LanguageModel, MaskedLanguageModel, BidirectionalLanguageModel, Classifier, Tagger, Features, ScalarMix),
    *(TransformerEncoder, RecurrentEncoder, ConvolutionalEncoder),
    *(TransformerDecoder, RecurrentDecoder, ConvolutionalDecoder),
    *(TransformerBlock, Residual, NoResidual, Stack, FeedForward, ActivationLayer, Dropout),
    *(SelfAttention, CrossAttention, ScoredSelfAttention, ScoredCrossAttention, ChunkedLinear, HeadwiseLinear),
    *(
        RecurrentLayer,
        ProjectedLSTM,
        Convolution,
        GatedConvolution,
        TokenEmbedding,
        SegmentEmbedding,
        OutputLayer,
        Narrowing,
    ),
    *(attention.GlobalAttention, attention.Pool, attention.Dot, attention.ScaledDot),
    *(attention.Bilinear, attention.Additive),
    *(positions.InputPositions, positions.Rotary, positions.Alibi, positions.RelativeBias),
    *(positions.IndexPositions, positions.NormalisedPositions, positions.OneHotPositions),
    *(positions.SinusoidalPositions, positions.LearnedPositions),
    *(nn.Linear, nn.Embedding, nn.LayerNorm, nn.RMSNorm, nn.Identity, nn.Sequential, nn.RNN, nn.GRU, nn.LSTM),
)


def check_known(network: nn.Module) -> None:
    """Refuse a network that might do something else than its classes say."""
    for name, module in network.named_modules():
        place = f"{name or 'the network'} ({type(module).__name__})"
        if type(module) not in KNOWN:
            raise SeqloomError(f"{place} is of a class that the lens does not know, so it cannot say what it computes")
        if not is_plain(module, type(module)):
            raise SeqloomError(
                f"{place} has a hook or a forward of its own, so the lens cannot say what it computes; remove it first"
            )


def check_rounding(found: Tensor, expected: Tensor, where: str) -> None:
    """Refuse to show a pass that is not the network's own."""
    size = float(expected.abs().amax()) if expected.numel() else 0.0
    apart = float((found - expected).abs().amax()) if expected.numel() else 0.0
    limit = min(4096 * torch.finfo(expected.dtype).eps, 0.05)
    if not apart <= limit * max(1.0, size):
        raise SeqloomError(
            f"the lens computed {where} otherwise than the network (they differ by {apart:.2g}), so it shows nothing; "
            "please report it with the configuration of the model"
        )

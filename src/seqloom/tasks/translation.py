"""Translation: turn one sequence into another.

L = − Σ_t log P(y_t | y_<t, x), and where words are aligned, attention is guided by them
"""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, TypeAdapter, ValidationError, model_validator
from torch import nn

from seqloom.config.base import Names, Positive, as_kind
from seqloom.config.batches import Frame, SampleBatches
from seqloom.config.data import ParallelData
from seqloom.config.stacks import (
    DecoderConfig,
    EncoderConfig,
    RecurrentDecoderConfig,
    RecurrentEncoderConfig,
    TransformerDecoderConfig,
)
from seqloom.config.tokenizer import Bpe, TokenizerFile, TokenizerPair, TranslationTokenizer, name_pair
from seqloom.data.batching import PairSamples
from seqloom.data.columns import AlignmentColumn, Column
from seqloom.data.shards import Records
from seqloom.decode.options import Request, SearchOptions
from seqloom.decode.search import search
from seqloom.errors import ConfigError
from seqloom.metrics.measure import Metric
from seqloom.metrics.translation import TRANSLATION
from seqloom.models.seq2seq import Seq2Seq
from seqloom.models.stacks import build_decoder, build_encoder
from seqloom.nn.embeddings import OutputLayer
from seqloom.nn.packing import pick
from seqloom.tasks.base import Answers, Context, Loss, Sample, Task, Usage, find_ids, list_rows
from seqloom.tasks.guided_attention import record_attention
from seqloom.tasks.language_model import find_targets, predict_tokens
from seqloom.tasks.model import EncoderModel
from seqloom.text import Tokenizer
from seqloom.text.roles import ROLES
from seqloom.types import PairBatch, TokenBatch

TWO_VOCABULARIES = (
    'model.tie_embeddings = "all" shares one table between sources and targets, but their tokenisers have different '
    'vocabularies; set it to "output" or "none", or use one tokeniser for both'
)


class TranslationModelConfig(EncoderModel):
    """Reads a source, writes a target. What the decoder does not say, it takes from the encoder."""

    decoder: DecoderConfig = TransformerDecoderConfig()
    """The decoder; family, num_layers, model_dim and dropout follow the encoder unless given."""
    target_vocab_size: Positive | None = Field(None, examples=[32128])
    """Rows of the table of target embeddings, where targets have a vocabulary of their own; absent: as many as it
    has tokens."""
    tie_embeddings: Literal["all", "output", "none"] = "all"
    """Share one table between source, target and output; between target and output; or not at all. Unless given, it is
    "output" where each side has a tokeniser of its own."""
    output_bias: bool = True
    """Whether the output layer learns a number for each token; models in T5's layout have none."""

    @model_validator(mode="before")
    @classmethod
    def _decoder_follows_encoder(cls, data: Any) -> Any:
        if not isinstance(data, dict) or not isinstance(data.get("decoder", {}), dict):
            return data
        try:
            shared = dict(TypeAdapter[EncoderConfig](EncoderConfig).validate_python(data.get("encoder", {})))
        except ValidationError:  # the encoder's faults are reported once, as the encoder's
            return data
        followed = {key: shared[key] for key in ("family", "num_layers", "model_dim", "dropout") if key in shared}
        return {**data, "decoder": {**followed, **data.get("decoder", {})}}

    @model_validator(mode="after")
    def _widths_fit(self) -> Self:
        source, target, decoder = self.encoder.model_dim, self.decoder.model_dim, self.decoder
        if self.copies_state:
            self._check_copy()
        if not isinstance(decoder, RecurrentDecoderConfig) and decoder.chunked_heads and source % decoder.num_heads:
            raise ValueError(
                f"decoder.chunked_heads = true splits the encoder's states of width {source} into "
                f"decoder.num_heads = {decoder.num_heads} equal chunks; give a num_heads that divides it"
            )
        if source == target:
            return self
        if self.tie_embeddings == "all":
            raise ValueError(
                f'tie_embeddings = "all" needs equal widths, but encoder.model_dim = {source} and '
                f'decoder.model_dim = {target}; use "output" or make them equal'
            )
        if isinstance(decoder, RecurrentDecoderConfig) and decoder.context == "attention" and "dot" in decoder.score:
            raise ValueError(
                f'decoder.score = "{decoder.score}" needs equal widths, but encoder.model_dim = {source} and '
                f'decoder.model_dim = {target}; use "bilinear" or "additive", or make them equal'
            )
        return self

    @property
    def copies_state(self) -> bool:
        """Whether the decoder starts from the encoder's last state."""
        return isinstance(self.decoder, RecurrentDecoderConfig) and self.decoder.bridge == "copy"

    def _check_copy(self) -> None:
        encoder, decoder = self.encoder, self.decoder
        wanted = 'decoder.bridge = "copy" takes over the last state of every layer'
        if not isinstance(encoder, RecurrentEncoderConfig):
            raise ValueError(f'{wanted}, but the encoder is {encoder.family}; make it recurrent, or bridge = "learned"')
        for key in ("cell", "num_layers", "model_dim"):
            one, other = getattr(encoder, key), getattr(decoder, key)
            if one != other:
                raise ValueError(
                    f"{wanted}, but encoder.{key} = {one} and decoder.{key} = {other}; "
                    'make them equal, or bridge = "learned"'
                )
        if encoder.memory_dim is not None or encoder.clip is not None:
            raise ValueError(
                f'{wanted}, which encoder.memory_dim and encoder.clip change; leave them out, or bridge = "learned"'
            )

    def build(self, vocab_size: int, num_outputs: int | None = None) -> Seq2Seq:
        """Any encoder beside any decoder; `num_outputs` is the size of the target vocabulary, if it is another one."""
        rows = self.count_rows(vocab_size)
        outputs = rows if num_outputs is None else self.count_rows(num_outputs, "target_vocab_size")
        encoder = build_encoder(self.encoder, keep_final=self.copies_state)
        decoder = build_decoder(self.decoder, encoder.output_dim)
        source = self.build_embedding(rows, encoder.input_dim)
        target = source if self.tie_embeddings == "all" else self.build_embedding(outputs, decoder.input_dim)
        tied = None if self.tie_embeddings == "none" else target
        output = OutputLayer(decoder.output_dim, outputs, tied, bias=self.output_bias)
        return Seq2Seq(source, encoder, target, decoder, output)


class TranslationTask(Task):
    """Turn one sequence into another."""

    task: Literal["translation"] = "translation"
    data: ParallelData
    """Where the records are."""
    source_frame: Frame = Frame(after=("eos",))
    """The special tokens around each source."""
    target_frame: Frame = Frame(before=("bos",), after=("eos",))
    """The special tokens around each target."""
    end_tokens: Names = Field((), examples=[["<|im_end|>"]])
    """More tokens that end an answer, by their names in the tokeniser; imported models may have some."""
    batch: SampleBatches = SampleBatches()
    """How records become batches."""
    tokenizer: TranslationTokenizer = Bpe()  # type: ignore[assignment]
    """How text becomes tokens: bpe, characters, bytes, words, wordpiece, unigram, or a file; in the tables
    [tokenizer.source] and [tokenizer.target], one for each side."""
    model: TranslationModelConfig = TranslationModelConfig()
    """What is trained."""

    example_files: ClassVar = {"source": "train.de", "target": "train.en"}
    verbs: ClassVar = ("translate", "embed the source", "score a translation")
    evaluated_by: ClassVar = "translate"
    writes: ClassVar = True
    predicts_tokens: ClassVar = True
    max_answers: ClassVar = 200

    @model_validator(mode="before")
    @classmethod
    def _two_tables_for_two_vocabularies(cls, data: Any) -> Any:
        tokenizer = name_pair(as_kind(data.get("tokenizer"))) if isinstance(data, dict) else None
        model = data.get("model", {}) if isinstance(tokenizer, dict) and tokenizer.get("kind") == "pair" else None
        return data if not isinstance(model, dict) else {**data, "model": {"tie_embeddings": "output", **model}}

    @model_validator(mode="after")
    def _tokenizers_fit(self) -> Self:
        if not isinstance(self.tokenizer, TokenizerPair):
            return self
        if self.init is not None:
            raise ValueError(
                "init takes over the tokenisers of a run; leave out [tokenizer.source] and [tokenizer.target], or init"
            )
        learned = not all(isinstance(side, TokenizerFile) for side in (self.tokenizer.source, self.tokenizer.target))
        if learned and self.model.tie_embeddings == "all":  # of files, it is known when they are read
            raise ValueError(TWO_VOCABULARIES)
        return self

    def list_usages(self) -> list[Usage]:
        """Translating."""
        first = Usage("translate", "echo {text} | seqloom translate {run}", "model.translate({text}).text")
        more = Usage(
            "several translations with their scores",
            "echo {text} | seqloom translate {run} --beam 5 --nbest 3 --json",
            "model.translate({text}, beam=5, nbest=3)",
        )
        return [first, more, *super().list_usages()]

    def frames(self) -> dict[str, Frame]:
        """A source and a target."""
        return {"source": self.source_frame, "target": self.target_frame}

    def find_more_ends(self, tokenizer: Tokenizer) -> tuple[int, ...]:
        """Those that the user names."""
        return find_ids("end_tokens", self.end_tokens, tokenizer.target)

    @property
    def guided(self) -> bool:
        """Whether attention is guided by alignments."""
        corpora = self.data.train
        return self.data.alignment_weight > 0 and any(getattr(corpus, "alignment", ()) for corpus in corpora)

    def make_columns(self, tokenizer: Tokenizer, labels: tuple[str, ...]) -> dict[str, Column]:
        """Two texts and, where there are some, the alignments of their words."""
        columns = super().make_columns(tokenizer, labels)
        return {**columns, "alignment": AlignmentColumn(tokenizer)} if self.guided else columns

    def make_samples(self, records: Records, tokenizer: Tokenizer, *, training: bool) -> PairSamples:
        """Sources with their targets."""
        guided = training and self.guided
        if guided and self.train.sharding == "full":
            raise ConfigError(
                "data.train.alignment: attention whose weights are in pieces cannot be guided; "
                'set train.sharding = "none", or data.alignment_weight = 0'
            )
        frames = self.find_frames(tokenizer)
        for side, ids in zip(("before", "after"), frames["target"], strict=True):
            if not ids:
                known = [role for role in ROLES if getattr(tokenizer.target.roles, role) is not None]
                raise ConfigError(
                    f"target_frame.{side}: no token of the tokeniser is {side} a target, so an answer would have no "
                    f"{'start' if side == 'before' else 'end'}; it has {', '.join(known) or 'no special tokens'}: "
                    'name some of them, as in target_frame = {before = "pad", after = "eos"}'
                )
        templates = [{role: frame} for role, frame in frames.items()]
        weight = self.data.alignment_weight if guided else 0.0
        segmentation = self.make_segmentation(tokenizer, training=training)
        pad, target_pad = tokenizer.roles.pad or 0, tokenizer.target.roles.pad or 0
        return PairSamples(records, templates, self.limit, pad, segmentation, weight, target_pad)

    def check_segmentation(self) -> None:
        """Words that are cut anew have no alignment."""
        if self.guided:
            raise ConfigError(
                "tokenizer.dropout cuts words anew in every epoch, and data.train.alignment joins their tokens; "
                "set one of them to 0: tokenizer.dropout, or data.alignment_weight"
            )

    def build(self, tokenizer: Tokenizer, labels: Sequence[str] = ()) -> Seq2Seq:
        """The network, with random weights; vocabularies that differ cannot have a table in common."""
        if tokenizer.shares_ids:
            if self.model.target_vocab_size is not None:
                raise ConfigError(
                    "model.target_vocab_size: sources and targets have one vocabulary; set model.vocab_size instead"
                )
            return self.model.build(tokenizer.vocab_size)
        if self.model.tie_embeddings == "all":
            raise ConfigError(TWO_VOCABULARIES)
        return self.model.build(tokenizer.vocab_size, tokenizer.target.vocab_size)

    def compute_loss(self, network: nn.Module, batch: PairBatch, *, smoothing: float = 0.0) -> Loss:
        """The cross-entropy of the target tokens, and how far attention is from the alignment."""
        assert isinstance(network, Seq2Seq)
        read = batch.target.derive(lambda target: TokenBatch(target.ids[:, :-1], target.mask[:, 1:]))
        with nullcontext() if batch.alignment is None else record_attention(network) as guidance:
            states = network(PairBatch(batch.source, read))
        wanted = find_targets(batch.target, read.known.mask, 1)
        loss = predict_tokens(network.output, pick(states, wanted.places), wanted, smoothing)
        if batch.alignment is None or guidance is None:
            return loss
        return Loss(loss.total + guidance.measure(batch.alignment), loss.count)

    def metrics(self, labels: Sequence[str]) -> tuple[Metric, ...]:
        """How near the translations are to the references."""
        return TRANSLATION

    def default_metric(self, labels: Sequence[str]) -> str:
        """BLEU: where there is little text, it goes on rising when the loss does, too."""
        return self.metrics(labels)[0].name

    def answer(self, network: nn.Module, batch: PairBatch, loss: Loss, context: Context) -> Answers:
        """Greedy translations, and the references as the tokeniser spells them."""
        wanted = context.tokenizer.target.decode_batch(list_rows(batch.target))
        return Answers([(reference,) for reference in wanted], self._translate(network, batch.source, context))

    def show(self, network: nn.Module, batch: PairBatch, context: Context) -> list[Sample]:
        """Sources with their translations."""
        read = context.tokenizer.decode_batch(list_rows(batch.source))
        wanted = context.tokenizer.target.decode_batch(list_rows(batch.target))
        return list(map(Sample, read, self._translate(network, batch.source, context), wanted))

    def _translate(self, network: nn.Module, source: TokenBatch, context: Context) -> list[str]:
        """Greedy translations."""
        assert isinstance(network, Seq2Seq)
        (start, *lead), (end, *_) = self.find_frames(context.tokenizer)["target"]
        longest = 2 * source.ids.shape[1] + 10
        longest = min(longest, self.model.decoder.max_positions or longest)
        state = network.start(network.encode(source), longest)
        requests = [Request(start, longest, tuple(lead[:longest]))] * len(source.ids)
        beyond = tuple(range(context.tokenizer.target.vocab_size, len(network.output.weight)))  # rows that are no token
        never = beyond if context.seen is None else (*context.seen.unseen, *beyond)
        found = search(network.step, state, requests, SearchOptions(), ends=(end,), never=never)
        return context.tokenizer.target.decode_batch([best.ids for best, *_ in found])

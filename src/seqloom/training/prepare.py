"""From a configuration and the user's files to batches: check, learn the tokeniser, encode, frame."""

import hashlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_never

from seqloom.config import Config, load
from seqloom.config.batches import Frame as FrameConfig
from seqloom.config.batches import LineRows, Role, TextBatches
from seqloom.config.data import Data, LabelledData
from seqloom.config.tasks import (
    BidirectionalLanguageModelTask,
    ClassificationTask,
    LanguageModelTask,
    MaskedLanguageModelTask,
    ModelTask,
    TaggingTask,
    TranslationTask,
)
from seqloom.config.tokenizer import TokenizerFile
from seqloom.data.batching import (
    Batches,
    LabelledSamples,
    MaskedSamples,
    PairSamples,
    Samples,
    TaggedSamples,
    build_text_samples,
)
from seqloom.data.columns import AlignmentColumn, Column, LabelColumn, NumberColumn, TaggedColumn, TextColumn
from seqloom.data.corpus import SPLITS, Corpus, open_split
from seqloom.data.doctor import examine
from seqloom.data.encoding import encode_corpus
from seqloom.data.masking import build_masker
from seqloom.data.rows import Frame, Limit, Segment
from seqloom.data.shards import Records
from seqloom.errors import ConfigError
from seqloom.seeds import derive_seed
from seqloom.text import BpeDropout, Tokenizer

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Prepared:
    """Everything a training needs to know of the data."""

    tokenizer: Tokenizer
    labels: tuple[str, ...]
    """The labels or tags, in the order of their numbers; empty where there are none."""
    train: Batches[Any]
    valid: Batches[Any] | None
    fingerprint: str
    """Differs whenever the training data do."""

    @property
    def num_outputs(self) -> int | None:
        """How many answers a classifier or tagger chooses from; 1 for a quantity, None for a text."""
        return len(self.labels) or None


def open_task(path: Path, overrides: Sequence[str], folder: Path, tell: Tell) -> Config:
    """Read a configuration and check its data; the size of the model follows theirs."""
    config = load(path, overrides)
    tell("checking the data")
    report = examine(config.data, path.parent, folder / "data" / "checks")
    report.refuse()
    return load(path, overrides, words=report.words)


def prepare(config: ModelTask, base: Path, folder: Path, tell: Tell) -> Prepared:
    """Make the batches of a configuration; what can be used again is kept in the run's folder."""
    splits = {split: open_split(config.data, split, base) for split in SPLITS}
    return make_batches(config, splits["train"], splits["valid"], base, folder, tell)


def make_batches(
    config: ModelTask, train: Sequence[Corpus], valid: Sequence[Corpus], base: Path, folder: Path, tell: Tell
) -> Prepared:
    """Learn the tokeniser, encode the corpora and frame them."""
    tokenizer = _get_tokenizer(config, train, base, folder, tell)
    labels = _find_labels(train) if _is_named(config.data) else ()
    columns = _choose_columns(config, tokenizer, labels)
    known, fingerprint = _encode("train", train, columns, folder, tell)
    unknown = _encode("valid", valid, columns, folder, tell)[0] if valid else None
    return Prepared(
        tokenizer,
        labels if _is_named(config.data) else ("",),
        _batch(config, known, tokenizer, [corpus.weight for corpus in train]),
        None if unknown is None else _batch(config, unknown, tokenizer, None),
        fingerprint,
    )


def frame_texts(config: ModelTask, tokenizer: Tokenizer) -> dict[str, Frame]:
    """The special tokens around each text of a task."""
    return {
        role: Frame(*(_find_ids(tokenizer, part) for part in (said.before, said.after)))
        for role, said in _frames(config)
    }


def _frames(config: ModelTask) -> Iterator[tuple[str, FrameConfig]]:
    match config:
        case TranslationTask():
            yield from (("source", config.source_frame), ("target", config.target_frame))
        case LanguageModelTask() | BidirectionalLanguageModelTask() | MaskedLanguageModelTask():
            yield "text", config.frame
        case ClassificationTask():
            yield "text", config.frame
            if _has_second(config.data):
                yield "second", config.second_frame
        case TaggingTask():
            yield "words", config.frame
        case _ as unreachable:
            assert_never(unreachable)


def _find_ids(tokenizer: Tokenizer, roles: Sequence[Role]) -> tuple[int, ...]:
    return tuple(id for role in roles if (id := getattr(tokenizer.roles, role)) is not None)


def _get_tokenizer(config: ModelTask, corpora: Sequence[Corpus], base: Path, folder: Path, tell: Tell) -> Tokenizer:
    """The tokeniser of an earlier start of the same run, or a new one learned from the training texts."""
    path = folder / "tokenizer.json"
    if not path.exists() and config.init is not None:
        folder.mkdir(parents=True, exist_ok=True)
        Tokenizer.load(base / config.init / "tokenizer.json").save(path)
    if path.exists():
        return Tokenizer.load(path)
    tell("learning the tokeniser")
    kind = config.tokenizer
    if isinstance(kind, TokenizerFile):
        kind = kind.model_copy(update={"path": str(base / kind.path)})  # as every name in a configuration
    with warnings.catch_warnings(record=True) as noticed:
        warnings.simplefilter("always")
        tokenizer = Tokenizer.train(_read_texts(corpora), kind)
    for notice in noticed:
        tell(str(notice.message))
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(path)
    return tokenizer


def _read_texts(corpora: Sequence[Corpus]) -> Iterator[str]:
    for corpus in corpora:
        for example in corpus:
            for role, value in example.values.items():
                if role == "words":
                    yield " ".join(value)
                elif role not in ("label", "tags", "alignment"):
                    assert isinstance(value, str)
                    yield value


def _find_labels(corpora: Sequence[Corpus]) -> tuple[str, ...]:
    found: set[str] = set()
    for corpus in corpora:
        for example in corpus:
            value = example.values.get("label", example.values.get("tags", ()))
            found.update([value] if isinstance(value, str) else value)
    return tuple(sorted(found))


def _is_named(data: Data) -> bool:
    return not (isinstance(data, LabelledData) and data.labels == "numbers")


def _has_second(data: LabelledData) -> bool:
    return any(getattr(getattr(corpus, "columns", None), "second", None) is not None for corpus in data.train)


def _has_alignments(config: TranslationTask) -> bool:
    """Whether attention is to be guided."""
    return config.data.alignment_weight > 0 and any(getattr(corpus, "alignment", ()) for corpus in config.data.train)


def _choose_columns(config: ModelTask, tokenizer: Tokenizer, labels: tuple[str, ...]) -> Mapping[str, Column]:
    text = TextColumn(tokenizer)
    match config:
        case TaggingTask():
            return {"words": TaggedColumn(tokenizer, labels)}
        case ClassificationTask():
            label: Column = LabelColumn(labels) if _is_named(config.data) else NumberColumn()
            return {**dict.fromkeys(frame_texts(config, tokenizer), text), "label": label}
        case TranslationTask() if _has_alignments(config):
            return {**dict.fromkeys(frame_texts(config, tokenizer), text), "alignment": AlignmentColumn(tokenizer)}
        case _:
            return dict.fromkeys(frame_texts(config, tokenizer), text)


def _encode(
    split: str, corpora: Sequence[Corpus], columns: Mapping[str, Column], folder: Path, tell: Tell
) -> tuple[Records, str]:
    folders = [folder / "data" / f"{split}-{number}" for number in range(len(corpora))]
    digest = hashlib.sha256()
    for corpus, target in zip(corpora, folders, strict=True):
        tell(f"encoding the {split} data")
        digest.update(repr([shard.sha256 for shard in encode_corpus(corpus, columns, target).manifest.shards]).encode())
    return Records(folders), digest.hexdigest()


def _batch(config: ModelTask, records: Records, tokenizer: Tokenizer, weights: Sequence[float] | None) -> Batches[Any]:
    """Batches for training, with the weight of each corpus; or for judging, without."""
    frames, seed = frame_texts(config, tokenizer), config.train.seed
    pad = tokenizer.roles.pad or 0
    segment = _segment(config, tokenizer, frames) if weights is not None else {}
    samples: Samples[Any]
    match config:
        case LanguageModelTask() | BidirectionalLanguageModelTask() | MaskedLanguageModelTask():
            lookahead = 1 if isinstance(config, LanguageModelTask) else 0
            samples = build_text_samples(
                records,
                config.batch.rows,
                frames["text"],
                pad=pad,
                seed=seed,
                lookahead=lookahead,
                training=weights is not None,
                segment=segment,
            )
            if isinstance(config, MaskedLanguageModelTask):
                samples = MaskedSamples(samples, build_masker(config.masking, tokenizer, seed))
            return Batches(samples, tokens=config.batch.tokens, seed=seed, weights=weights)
        case TranslationTask() | ClassificationTask() | TaggingTask():
            limit = Limit(config.batch.max_length, config.batch.over)
            match config:
                case TranslationTask():
                    source, target = {"source": frames["source"]}, {"target": frames["target"]}
                    guided = weights is not None and _has_alignments(config)
                    if guided and config.train.sharding == "full":
                        raise ConfigError(
                            "data.train.alignment: attention whose weights are in pieces cannot be guided; "
                            'set train.sharding = "none", or data.alignment_weight = 0'
                        )
                    weight = config.data.alignment_weight if guided else 0.0
                    samples = PairSamples(records, source, target, limit, pad, segment, weight)
                case ClassificationTask():
                    samples = LabelledSamples(records, frames, limit, pad, segment)
                case TaggingTask():
                    samples = TaggedSamples(records, frames["words"], limit, pad)
            return Batches(samples, tokens=config.batch.tokens, seed=seed, weights=weights, pool=config.batch.pool)
        case _ as unreachable:
            assert_never(unreachable)


def _reads_lines(config: ModelTask) -> bool:
    return isinstance(config.batch, TextBatches) and isinstance(config.batch.rows, LineRows)


def _segment(config: ModelTask, tokenizer: Tokenizer, roles: Iterable[str]) -> dict[str, Segment]:
    """BPE dropout for each text, if it was asked for: other cuts of the same words, a function of seed and sample."""
    rate = getattr(config.tokenizer, "dropout", 0.0)
    if not rate:
        return {}
    if not isinstance(config, TranslationTask | ClassificationTask) and not _reads_lines(config):
        raise ConfigError(
            "tokenizer.dropout: only a row that is one whole text can be cut anew, and not a row of tagged words; "
            'set it to 0, or for plain text batch.rows = {kind = "lines"}'
        )
    if isinstance(config, TranslationTask) and _has_alignments(config):
        raise ConfigError(
            "tokenizer.dropout cuts words anew at every sight, and data.train.alignment joins their tokens; "
            "set one of them to 0: tokenizer.dropout, or data.alignment_weight"
        )
    dropout = BpeDropout(tokenizer, rate)

    def segment(ids: list[int], number: int) -> list[int]:
        return dropout.encode(tokenizer.decode(ids), derive_seed(config.train.seed, number))

    return dict.fromkeys(roles, segment)

"""Examines all splits, each alone and then together, and caches reports."""

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from operator import ge
from pathlib import Path

from pydantic import ValidationError

from seqloom import __version__
from seqloom.config.data import Data, ParallelData
from seqloom.data.corpus import SPLITS, Corpus, open_split
from seqloom.data.doctor.alignment import explain_unequal, find_misaligned
from seqloom.data.doctor.report import Findings, Report
from seqloom.data.doctor.split import SplitExaminer
from seqloom.data.examples import Fault
from seqloom.data.files import STDIN, Advance, ignore
from seqloom.files import hash_file, write_whole

_SETTLED = 2.0
"""Seconds after a change from which another change is sure to have a different modification time."""
COMPARED_WORDS = 20
"""A split with fewer words on a side says nothing about its direction."""
SWAPPED = 0.5
"""How much more must be known of a split's words if its sides are exchanged; both sides together have 2."""
FULL_STOPS = 100
"""Fewer lines that end with a full stop say nothing about tokenisation."""


def examine(data: Data, base: Path, cache: Path | None = None, advance: Advance = ignore) -> Report:
    """Check all data of a configuration; with a folder for `cache`, unchanged data is not read again."""
    path = _Cache(cache).find(data, base) if cache else None
    if path:
        try:
            return Report.model_validate_json(path.read_bytes())
        except (OSError, ValidationError):
            pass
    report = examine_into(Findings(data.checks), data, base, advance)
    if path:
        write_whole(path, report.model_dump_json().encode())
    return report


def examine_into(findings: Findings, data: Data, base: Path, advance: Advance = ignore) -> Report:
    """Check all data; the details are added to `findings`."""
    examiners: list[SplitExaminer] = []
    stats = []
    for split in SPLITS:
        corpora = open_split(data, split, base)
        if corpora:
            examiner = SplitExaminer(data, split, findings, examiners[0] if examiners else None)
            _read(examiner, corpora, advance)
            examiners.append(examiner)
            stats.append(examiner.summary(sum(len(corpus.files()) for corpus in corpora)))
    _compare_tokenisation(examiners, findings)
    _compare_directions(examiners, findings)
    return Report(findings=findings.summary(), splits=tuple(stats))


def _read(examiner: SplitExaminer, corpora: Sequence[Corpus], advance: Advance) -> None:
    partners: dict[str, str] = {}
    unequal: set[str] = set()
    for corpus in corpora:
        sides, _ = corpus.sides()
        if len(sides) > 1:
            partners |= dict(zip(*list(sides.values())[:2], strict=False))
        repeated = corpus.holdout is not None and corpus.holdout.held_out  # the training half reported the faults
        for chunk in corpus.chunks(advance):
            faults = [] if repeated else chunk.faults
            for index, fault in enumerate(faults):
                other = partners.get(fault.path, STDIN)  # an alignment has no partner to be compared with
                if fault.kind == "unequal_lines" and STDIN not in (fault.path, other):
                    unequal.add(fault.path)
                    faults[index] = explain_unequal(fault, other, corpus.max_line)
            examiner.add(replace(chunk, faults=faults))
    source = "train" if any(corpus.holdout is not None for corpus in corpora) else examiner.split
    if not examiner.index.size and not examiner.findings.has_unreadable(source):
        files = corpora[0].files() or [str(corpora[0].base)]
        split, holdout = examiner.split, corpora[0].holdout
        message = f"all records of {split} are blank" if examiner.records else f"{split} has no records"
        if holdout is not None and examiner.train is not None and examiner.train.index.size:
            message = holdout.explain_emptiness()
        examiner.findings.add(split, Fault("no_records", files[0], 0, message))
    examiner.finish()
    if isinstance(examiner.data, ParallelData) and examiner.findings.wants("misaligned"):
        _check_alignment(examiner, {path: other for path, other in partners.items() if path not in unequal})


def _check_alignment(examiner: SplitExaminer, partners: dict[str, str]) -> None:
    left, right, lines = (examiner.index.column(name) for name in ("left", "right", "line"))
    for path, part in examiner.index.files():
        if path in partners:
            for fault in find_misaligned(path, partners[path], left[part], right[part], lines[part]):
                examiner.findings.add(examiner.split, fault)


def _compare_tokenisation(examiners: Sequence[SplitExaminer], findings: Findings) -> None:
    """Tokenised text ends `word .`, raw text `word.`: a column should be one or the other, in every split."""
    roles = {role for examiner in examiners for role in examiner.statistics}
    for role in sorted(roles):
        shares = []
        for examiner in examiners:
            column = examiner.statistics.get(role)
            if column and column.full_stops >= FULL_STOPS:
                share = column.spaced_full_stops / column.full_stops
                shares.append((share, examiner))
                if 0.1 < share < 0.9:
                    message = f"{role}: {share:.0%} of the final full stops follow a space, as in tokenised text"
                    findings.add(examiner.split, Fault("mixed_tokenisation", examiner.path, 0, message))
        for share, examiner in shares[1:]:
            if abs(share - shares[0][0]) >= 0.8:
                this, that = ("tokenised", "raw") if share > 0.5 else ("raw", "tokenised")
                message = f"{role} is {this} here, but {that} in {shares[0][1].split}"
                findings.add(examiner.split, Fault("mixed_tokenisation", examiner.path, 0, message))


def _compare_directions(examiners: Sequence[SplitExaminer], findings: Findings) -> None:
    """A split whose sources look like the training targets, and the other way round, has its sides exchanged."""
    if not examiners or not {"source", "target"} <= examiners[0].statistics.keys():
        return
    trained = examiners[0].statistics
    for examiner in examiners[1:]:
        own = examiner.statistics
        if not own or min(column.words for column in own.values()) < COMPARED_WORDS:
            continue
        straight = [own[role].measure_known(trained[role]) for role in ("source", "target")]
        crossed = [own["source"].measure_known(trained["target"]), own["target"].measure_known(trained["source"])]
        if sum(crossed) - sum(straight) >= SWAPPED and all(map(ge, crossed, straight)):
            message = (
                f"{straight[0]:.0%} of its source words occur in train's source, {crossed[0]:.0%} in train's target: "
                "swapped?"
            )
            findings.add(examiner.split, Fault("swapped_sides", examiner.path, 0, message))


class _Cache:
    """A folder of reports, each named after the settings and the content of every file.

    The digest of a file is kept with its size and modification time, so an unchanged file is not read again.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._index = folder / "files.json"
        self._files: dict[str, list[int | str]] = _read_json(self._index)

    def find(self, data: Data, base: Path) -> Path:
        """The path of the report about this data."""
        digest = hashlib.blake2b(f"{__version__}\0{data.model_dump_json()}\0{base}".encode(), digest_size=16)
        for split in SPLITS:
            for corpus in open_split(data, split, base):
                for file in corpus.files():
                    digest.update(f"\0{split}\0{file}\0{self._digest(file)}".encode())
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self._index, json.dumps(self._files).encode())
        return self.folder / f"{digest.hexdigest()}.json"

    def _digest(self, file: str) -> str:
        path = Path(file)
        if not path.is_file():  # a pipe or standard input is never the same twice
            return str(time.time_ns())
        try:
            state = path.stat()
            known = self._files.get(str(path.resolve()), [])
            if known[:2] == [state.st_size, state.st_mtime_ns]:
                return str(known[2])
            digest = hash_file(path)
        except OSError as error:
            return f"unreadable: {error}"
        if time.time() - state.st_mtime > _SETTLED:
            self._files[str(path.resolve())] = [state.st_size, state.st_mtime_ns, digest]
        return digest


def _read_json(path: Path) -> dict[str, list[int | str]]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}

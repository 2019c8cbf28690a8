"""The whole examination: every split, then what only shows when they are seen together."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from seqloom.config.data import Data, ParallelData
from seqloom.data.corpus import SPLITS, Corpus, open_split
from seqloom.data.doctor.alignment import explain_unequal, find_misaligned
from seqloom.data.doctor.cache import Cache
from seqloom.data.doctor.findings import Findings
from seqloom.data.doctor.report import Report
from seqloom.data.doctor.survey import Survey
from seqloom.data.fault import Fault
from seqloom.data.lines import Advance, ignore
from seqloom.data.places import STDIN

FULL_STOPS = 100
"""Fewer lines that end with a full stop say nothing about tokenisation."""


def examine(data: Data, base: Path, cache: Path | None = None, advance: Advance = ignore) -> Report:
    """Check all data of a configuration; with a folder for `cache`, what did not change is not read again."""
    if cache is None:
        return examine_into(Findings(data.checks), data, base, advance)
    memory = Cache(cache)
    key = memory.key(data, base)
    report = memory.load(key)
    if report is None:
        report = examine_into(Findings(data.checks), data, base, advance)
        memory.save(key, report)
    return report


def examine_into(findings: Findings, data: Data, base: Path, advance: Advance = ignore) -> Report:
    """Check all data and leave the details in `findings`."""
    surveys: list[Survey] = []
    stats = []
    for split in SPLITS:
        corpora = open_split(data, split, base)
        if corpora:
            survey = Survey(data, split, findings, surveys[0] if surveys else None)
            _read(survey, corpora, advance)
            surveys.append(survey)
            stats.append(survey.summary(sum(len(corpus.files()) for corpus in corpora)))
    _compare_tokenisation(surveys, findings)
    return Report(findings=findings.summary(), splits=tuple(stats))


def _read(survey: Survey, corpora: Sequence[Corpus], advance: Advance) -> None:
    partners: dict[str, str] = {}
    unequal: set[str] = set()
    for corpus in corpora:
        sides, _ = corpus.sides()
        if len(sides) > 1:
            partners |= dict(zip(*sides[:2], strict=False))
        repeated = corpus.holdout is not None and corpus.holdout.held_out  # the training half told of the files' faults
        for chunk in corpus.chunks(advance):
            faults = [] if repeated else chunk.faults
            for index, fault in enumerate(faults):
                other = partners.get(fault.path, STDIN)  # an alignment has no partner to be compared with
                if fault.kind == "unequal_lines" and STDIN not in (fault.path, other):
                    unequal.add(fault.path)
                    faults[index] = explain_unequal(fault, other, corpus.max_line)
            survey.add(replace(chunk, faults=faults))
    if not survey.ledger.size and not survey.findings.has_unreadable(survey.split):
        files = corpora[0].files() or [str(corpora[0].base)]
        message = f"all records of {survey.split} are blank" if survey.records else f"{survey.split} has no records"
        survey.findings.add(survey.split, Fault("no_records", files[0], 0, message))
    survey.finish()
    if isinstance(survey.data, ParallelData) and survey.findings.wants("misaligned"):
        _check_alignment(survey, {path: other for path, other in partners.items() if path not in unequal})


def _check_alignment(survey: Survey, partners: dict[str, str]) -> None:
    left, right, lines = (survey.ledger.column(name) for name in ("left", "right", "line"))
    for path, part in survey.ledger.files():
        if path in partners:
            for fault in find_misaligned(path, partners[path], left[part], right[part], lines[part]):
                survey.findings.add(survey.split, fault)


def _compare_tokenisation(surveys: Sequence[Survey], findings: Findings) -> None:
    """Tokenised text ends `word .`, raw text `word.`: a column should be one or the other, in every split."""
    roles = {role for survey in surveys for role in survey.tallies}
    for role in sorted(roles):
        shares = []
        for survey in surveys:
            tally = survey.tallies.get(role)
            if tally and tally.full_stops >= FULL_STOPS:
                share = tally.spaced_full_stops / tally.full_stops
                shares.append((share, survey))
                if 0.1 < share < 0.9:
                    message = f"{role}: {share:.0%} of the final full stops stand alone, as in tokenised text"
                    findings.add(survey.split, Fault("mixed_tokenisation", survey.path, 0, message))
        for share, survey in shares[1:]:
            if abs(share - shares[0][0]) >= 0.8:
                this, that = ("tokenised", "raw") if share > 0.5 else ("raw", "tokenised")
                message = f"{role} is {this} here, but {that} in {shares[0][1].split}"
                findings.add(survey.split, Fault("mixed_tokenisation", survey.path, 0, message))

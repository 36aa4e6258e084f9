"""`bloomery corpus dedup`: JSONL files without the documents or paragraphs that came before."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bloomery.cli import options
from bloomery.cli.amounts import show_memory, show_rate
from bloomery.cli.progress import CorpusProgress
from bloomery.cli.pump import Interrupts, SignalInterrupt
from bloomery.cli.terminal import emit_line, say, with_step
from bloomery.errors import BloomeryError

if TYPE_CHECKING:
    from bloomery.apps.corpus import CorpusReport

EXAMPLE = (
    "bloomery corpus dedup in/*.jsonl.zst --out out/"
    "; bloomery corpus dedup in/ --out out/ --by paragraph --filter seen.bloom"
    "; bloomery corpus dedup in/ --out out/ --by ngram --against tests.jsonl --keep-duplicates"
    "; bloomery corpus dedup in/ --out out/ --near --annotate"
)

_COMPARED, _OUTPUT = "What is compared", "The output"


def dedup(
    inputs: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="JSON lines, plain, gzip or zstd; of a folder, all .jsonl files below it.",
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where the outputs go.")
    ],
    by: Annotated[
        Literal["document", "paragraph", "ngram"],
        typer.Option(
            metavar="WHAT",
            help="document: whole texts; paragraph: lines of texts; ngram: by how many runs of"
            " words were seen.",
            rich_help_panel=_COMPARED,
        ),
    ] = "document",
    near: Annotated[
        bool,
        typer.Option(
            "--near",
            help="Documents that have most runs of words in common, by MinHash.",
            rich_help_panel=_COMPARED,
        ),
    ] = False,
    unit: Annotated[
        Literal["paragraph", "document"] | None,
        typer.Option(
            metavar="UNIT",
            help="ngram: what goes, paragraph or document. Default: paragraph.",
            rich_help_panel=_COMPARED,
        ),
    ] = None,
    words: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="ngram, near: how many words are a run. Default: 13; 5 with --near.",
            rich_help_panel=_COMPARED,
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="ngram, near: which share of them is enough. Default: 0.8.",
            rich_help_panel=_COMPARED,
        ),
    ] = None,
    bands: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="near: bands of the signature. Default: what suits the threshold, of 128 places.",
            rich_help_panel=_COMPARED,
        ),
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option(metavar="N", help="near: places of a band.", rich_help_panel=_COMPARED),
    ] = None,
    field: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="The member that has the text.", rich_help_panel=_COMPARED
        ),
    ] = "text",
    against: Annotated[
        list[Path] | None,
        typer.Option(
            "--against",
            metavar="FILE",
            help="What is in here counts as seen: tests to keep out of training. May be repeated.",
            rich_help_panel=_COMPARED,
        ),
    ] = None,
    keep_duplicates: Annotated[
        bool,
        typer.Option(
            "--keep-duplicates",
            help="Remove what is in --against, and nothing else.",
            rich_help_panel=_COMPARED,
        ),
    ] = False,
    filter: Annotated[
        Path | None,
        typer.Option(
            "--filter",
            "-f",
            metavar="FILE",
            help="Keep what was seen in FILE, from run to run.",
            rich_help_panel=options.FILTER,
        ),
    ] = None,
    capacity: Annotated[
        int | None,
        options.capacity(
            "Documents, paragraphs or n-grams to expect. Default: estimated from a sample."
        ),
    ] = None,
    error_rate: Annotated[
        float | None,
        options.error_rate(
            "Chance that something new is taken for a duplicate. Default: 1e-6; of an n-gram 1e-3."
        ),
    ] = None,
    annotate: Annotated[
        bool,
        typer.Option(
            "--annotate",
            help="Remove nothing; write where duplicates are, in Dolma's attributes format.",
            rich_help_panel=_OUTPUT,
        ),
    ] = False,
    removed: Annotated[
        bool,
        typer.Option(
            "--removed",
            help="Write beside the output, to FOLDER/removed, what was removed of it.",
            rich_help_panel=_OUTPUT,
        ),
    ] = False,
    level: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="How hard to compress. Default: 1 for gzip, 3 for zstd.",
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    skip_bad: Annotated[
        bool,
        typer.Option(
            "--skip-bad",
            help="Leave lines out that are no documents, and count them.",
            rich_help_panel=options.RUN,
        ),
    ] = False,
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads",
            "-j",
            min=1,
            metavar="N",
            help="Files at a time. Default: one a core. With 1 the outcome is always the same.",
            rich_help_panel=options.RUN,
        ),
    ] = None,
    checkpoint: options.Checkpoint = 30.0,
    restart: Annotated[
        bool,
        typer.Option(
            "--restart", help="Forget what was done; begin anew.", rich_help_panel=options.RUN
        ),
    ] = False,
    json: options.Json = False,
    quiet: options.NoProgress = False,
) -> int:
    """Write the documents of JSONL files to a folder, without duplicates; in a filter's memory.

    Stopped or killed, it goes on where it was when it is run again. Exits with 0 when done, 1 when
    more came than the filter has room for, 2 on an error.
    """
    from bloomery.apps import corpus

    if near and by != "document":
        raise typer.BadParameter("not with --by: it compares whole documents", param_hint="--near")
    progress = CorpusProgress(quiet or json)

    def warn(message: str) -> None:
        progress.stop()
        say(f"warning: {message}")

    with Interrupts():
        try:
            report = corpus.dedup(
                inputs,
                out,
                by="near" if near else by,
                unit=unit,
                words=words,
                threshold=threshold,
                bands=bands,
                rows=rows,
                field=field,
                error_rate=error_rate,
                capacity=capacity,
                filter=filter,
                against=against or (),
                keep_duplicates=keep_duplicates,
                annotate=annotate,
                removed=removed,
                skip_bad=skip_bad,
                threads=threads,
                level=level,
                restart=restart,
                every=checkpoint,
                progress=lambda now: progress.advance(
                    now.position, now.total, now.documents, now.units_removed
                ),
                warn=warn,
            )
        except SignalInterrupt as stop:
            step = "interrupted; the same command goes on from the last checkpoint"
            raise SignalInterrupt(stop.signum, step) from None
        except (BloomeryError, OSError) as failure:
            if progress.begun:
                with_step(failure, "the same command then goes on from the last checkpoint")
            raise
        finally:
            progress.stop()
    _show(report, json, annotate, "paragraphs" if by != "document" and unit != "document" else "")
    return 1 if report.saturated else 0


def _show(report: "CorpusReport", json: bool, annotate: bool, units: str) -> None:
    if json:
        from json import dumps

        emit_line(dumps(report.as_dict()))
        return
    total = report.total
    goes = "would go" if annotate else "removed"
    changed = f", {total.documents_changed:,} of the others lose a part" if units else ""
    emit_line(
        f"{total.documents:,} documents in {len(report.files):,} files: "
        f"{total.documents_removed:,} {goes}{changed}"
    )
    if units:
        emit_line(f"{total.units:,} {units}: {total.units_removed:,} {goes}")
    share = total.characters_removed / max(1, total.characters)
    emit_line(f"{total.characters:,} characters: {total.characters_removed:,} {goes} ({share:.1%})")
    emit_line(
        f"{report.keys:,} keys in a filter for {report.capacity:,},"
        f" {show_memory(report.memory_bytes)}; a new one is taken for an old one at"
        f" {show_rate(report.estimated_key_error_rate)} (estimated)"
    )
    if total.bad_lines:
        emit_line(f"{total.bad_lines:,} lines left out; the first: {report.first_bad_line}")
    if report.resumed:
        emit_line(f"{report.resumed:,} files were done by an earlier run")


COMMANDS = [("dedup", dedup, EXAMPLE)]

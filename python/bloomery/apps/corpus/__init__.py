"""Text corpora without duplicates: whole documents, paragraphs, n-grams, near-duplicates.

    dedup       one run over files of JSON lines: the filter, the threads, the checkpoints
    comparison  what is compared, and what follows from it: keys, bands, error rates
    texts       the same for texts in memory
    estimate    how many keys there will be, from a sample: the capacity that nobody gave
    files       which files are read and written, a chunk at a time
    checkpoint  how far a run has come, kept beside its output
    report      what was found

**One filter.** Native code splits a chunk of lines into units (documents or paragraphs) and hashes
them, asks the filter for all keys of a unit, adds those of a unit that stays, and writes the lines
without what goes. Threads split and write side by side and ask one after another: the outcome is
that of some order of the chunks, so that of two equal units one stays, and one alone.

**Kills.** A file is a unit of work. Its output is written under another name and put in its place
when it is whole. Now and then no new file is begun until those at hand are done; then the filter
and the list of finished files are saved, in one step. A run that was killed goes on from there: the
filter has the keys of the finished files and of no other, so that no document is taken for a
duplicate of itself, and all other files are done anew. With one thread the outcome is, byte for
byte, that of a run that nobody disturbed.
"""

from bloomery.apps.corpus.comparison import By, Unit
from bloomery.apps.corpus.dedup import dedup
from bloomery.apps.corpus.report import CorpusReport, FileCounts
from bloomery.apps.corpus.texts import TextDeduplicator

__all__ = ["By", "CorpusReport", "FileCounts", "TextDeduplicator", "Unit", "dedup"]

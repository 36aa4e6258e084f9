"""Finished jobs: crawls, corpora, caches, commands, feeds, and what else people use for them."""

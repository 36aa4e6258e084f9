"""Side-by-side runs against peers; `python -m benchmarks --help`.

Every time stands beside its bits a key and its observed error rate: each can be bought with the
others.
"""

"""Published figures, made from results files: `make figures`, or `python -m scripts.figures`.

`python -m benchmarks` leaves a file for each part, `benchmarks/results/PART.json`. What README and
the pages say about speed stands between `<!-- figures: NAME -->` and `<!-- end of figures -->`, and
is what the function NAME of a module here makes of those files; so are the numbers in
`bloomery.sizing.cluster_figures` and what the planner's page compares. A test compares. A run on a
busy machine, and a quick one, are refused.
"""

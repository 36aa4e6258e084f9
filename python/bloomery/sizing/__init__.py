"""How large a filter must be: pure maths, for every kind and layout (docs/sizing.md).

`bloom` sizes the plain filter (`plan`, `solve`), `blocked` and `classic` have the error rates of
its two layouts, `cells` sizes filters of counters and regions, `tables` those of fingerprints,
`exact` sizes exact sets, `family` a filter of any kind (`plan_kind`, `solve_kind`). `limits` checks
what is asked for, `amounts` reads it from text, `intervals` has the Wilson interval of an observed
rate, `cluster` sizes nodes and masters.
"""

from bloomery.sizing.blocked import LINE_BITS, LINE_BYTES, optimal_bits_per_key
from bloomery.sizing.bloom import (
    MAX_HASHES,
    ONE_LINE_HASHES,
    TWO_LINES_HASHES,
    Layout,
    Plan,
    capacity_for,
    check_layout,
    count_error,
    estimated_count,
    expected_error_rate,
    is_beyond,
    plan,
    shape_plan,
    solve,
)
from bloomery.sizing.cells import (
    CellPlan,
    cell_count_error,
    counting_plan,
    counting_shape_plan,
    deletable_plan,
    removable_share,
)
from bloomery.sizing.exact import MIN_EXACT_RATE, ExactPlan, exact_plan
from bloomery.sizing.limits import (
    MAX_CAPACITY,
    MAX_ERROR_RATE,
    MAX_MEMORY,
    MIN_ERROR_RATE,
    check_capacity,
    check_error_rate,
    check_sizes,
    show,
)

__all__ = [
    "LINE_BITS",
    "LINE_BYTES",
    "MAX_CAPACITY",
    "MAX_ERROR_RATE",
    "MAX_HASHES",
    "MAX_MEMORY",
    "MIN_ERROR_RATE",
    "MIN_EXACT_RATE",
    "ONE_LINE_HASHES",
    "TWO_LINES_HASHES",
    "CellPlan",
    "ExactPlan",
    "Layout",
    "Plan",
    "capacity_for",
    "cell_count_error",
    "check_capacity",
    "check_error_rate",
    "check_layout",
    "check_sizes",
    "count_error",
    "counting_plan",
    "counting_shape_plan",
    "deletable_plan",
    "estimated_count",
    "exact_plan",
    "expected_error_rate",
    "is_beyond",
    "optimal_bits_per_key",
    "plan",
    "removable_share",
    "shape_plan",
    "show",
    "solve",
]

"""The forward kernel for operators of one score, in Triton, and what the backward kernels share with it.

All is in base 2, where an exponential is one instruction. For query i and key j, with numbers c, s, n, h, t of query i:

    a = c q.k - s log2(1 + 2^-g) + h        g = gate_scale q_gate.k_gate
    l = log2 |f(a)|                         f by SCORE; "ssa" has n, and a in natural units
    w = sign(f) 2^(l - L)                   L = log2 Z, or 0 if scores are the weights
    Z = sum_j 2^max(l, t)                   "ground"; without t: "total"; 2^t + sum_j 2^l: "sink"

A tile has ROWS queries and KEYS keys. Channels of queries, values and the gate are WIDTH, WIDTH_V and WIDTH_G, and the
next powers of 2 are BLOCK, BLOCK_V and BLOCK_G. Entries beyond the length are 0 and are not stored. Names in
capitals are constants of the compiler. Arguments that an operator does not need are empty tensors.
"""

import triton
import triton.language as tl

LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def _log2(x, FAST: tl.constexpr):
    """Return log2 x for x >= 1, with one instruction if FAST."""
    if FAST:
        return tl.inline_asm_elementwise("lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, is_pure=True, pack=1)
    return tl.log2(x)


@triton.jit
def load(base, places, stride, length, WIDTH: tl.constexpr, BLOCK: tl.constexpr, ENDS: tl.constexpr = True):
    """Load rows [R, BLOCK] of a head; entries beyond its width, and if ENDS beyond its length, are 0."""
    columns = tl.arange(0, BLOCK)
    pointers = base + places[:, None] * stride + columns[None, :]
    if WIDTH == BLOCK and not ENDS:
        return tl.load(pointers)
    if WIDTH == BLOCK:
        return tl.load(pointers, mask=places[:, None] < length, other=0.0)
    return tl.load(pointers, mask=(places[:, None] < length) & (columns[None, :] < WIDTH), other=0.0)


@triton.jit
def store(base, places, stride, length, x, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Store rows [R, BLOCK] of a head."""
    columns = tl.arange(0, BLOCK)
    inside = (places[:, None] < length) & (columns[None, :] < WIDTH)
    tl.store(base + places[:, None] * stride + columns[None, :], x.to(base.dtype.element_ty), mask=inside)


@triton.jit
def head_of(tensor, strides, n, heads):
    """Return where head n of a tensor [B, H, T, ...] begins."""
    return tensor + (n // heads).to(tl.int64) * strides[0] + (n % heads).to(tl.int64) * strides[1]


@triton.jit
def row(base, n, places, length, USED: tl.constexpr):
    """Load a number per query of head n; 0 if the operator has none."""
    if USED:
        return tl.load(base + n.to(tl.int64) * length + places, mask=places < length, other=0.0)
    return tl.zeros_like(places).to(tl.float32)


@triton.jit
def store_row(base, n, places, length, x):
    """Store a number per query of head n."""
    tl.store(base + n.to(tl.int64) * length + places, x, mask=places < length)


@triton.jit
def load_numbers(
    numbers, n, places, length, SCORE: tl.constexpr, NORMALISED: tl.constexpr, GATED: tl.constexpr,
    SHIFTED: tl.constexpr,
):  # fmt: skip
    """Load c, s, n, h, t of queries."""
    factor, strength, exponent, shift, floor = numbers
    return (
        row(factor, n, places, length, True),
        row(strength, n, places, length, GATED),
        row(exponent, n, places, length, SCORE == "ssa"),
        row(shift, n, places, length, SHIFTED),
        row(floor, n, places, length, NORMALISED == "ground" or NORMALISED == "sink"),
    )


@triton.jit
def visible_keys(queries, keys, length, shown, shown_stride, CAUSAL: tl.constexpr, MASKED: tl.constexpr):
    """Return which keys queries see; `queries` and `keys` broadcast to the tile."""
    visible = (keys < length) & (queries < length)
    if CAUSAL:
        visible = visible & (queries >= keys)
    if MASKED:
        visible = visible & (tl.load(shown + queries.to(tl.int64) * shown_stride + keys, mask=visible, other=0) != 0)
    return visible


@triton.jit
def suppression(g, FAST: tl.constexpr):
    """Return log2(1 + 2^-g) and its negated slope, 1 / (1 + 2^g)."""
    e = tl.exp2(-tl.abs(g))
    return tl.maximum(-g, 0.0) + _log2(1.0 + e, FAST), tl.where(g >= 0, e, 1.0) / (1.0 + e)


@triton.jit
def log_score(a, n, SCORE: tl.constexpr, FAST: tl.constexpr):
    """Return l, the sign of the score, l'(a) / ln 2 (of "ssa": l'(a)) and, of "ssa", l / n."""
    one = tl.full(a.shape, 1.0, tl.float32)
    if SCORE == "exponential":
        return a, one, one, one
    elif SCORE == "signed_exponential":
        sign = tl.where(a > 0, 1.0, tl.where(a < 0, -1.0, 0.0))
        return tl.abs(a), sign, sign, one
    elif SCORE == "ssa":
        x = 1.0 + tl.abs(a)
        power = _log2(x, FAST)
        power = tl.where(a >= 0, power, -power)
        return n * power, one, n / x, power
    elif SCORE == "sigmoid":
        e = tl.exp2(-tl.abs(a))
        return tl.minimum(a, 0.0) - _log2(1.0 + e, FAST), one, tl.where(a >= 0, e, 1.0) / (1.0 + e), one
    else:
        tl.static_assert(SCORE == "elu_plus_one")
        x = 1.0 + tl.maximum(a, 0.0) * LN2
        return tl.minimum(a, 0.0) + _log2(x, FAST), one, 1.0 / x, one


@triton.jit
def _add_keys(
    state, first, stop, query, numbers, heads, strides, length, gate_scale,
    WIDTH: tl.constexpr, WIDTH_V: tl.constexpr, WIDTH_G: tl.constexpr, BLOCK: tl.constexpr, BLOCK_V: tl.constexpr,
    BLOCK_G: tl.constexpr, KEYS: tl.constexpr, SCORE: tl.constexpr, NORMALISED: tl.constexpr,
    CAUSAL: tl.constexpr, GATED: tl.constexpr, SHIFTED: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr,
    FAST: tl.constexpr, EDGE: tl.constexpr,
):  # fmt: skip
    """Add the keys from `first` to `stop` to the sums of a block of queries."""
    output, largest, total, short, below = state
    queries, q, q_gate = query
    factor, strength, exponent, shift, floor = numbers
    k_head, v_head, k_gate_head, shown = heads
    for start in range(first, stop, KEYS):
        keys = start + tl.arange(0, KEYS)
        k = load(k_head, keys, strides[0], length, WIDTH, BLOCK, EDGE)
        a = tl.dot(q, tl.trans(k), input_precision=PRECISION) * factor[:, None]
        if GATED:
            k_gate = load(k_gate_head, keys, strides[2], length, WIDTH_G, BLOCK_G, EDGE)
            g = tl.dot(q_gate, tl.trans(k_gate), input_precision=PRECISION) * gate_scale
            a -= strength[:, None] * suppression(g, FAST)[0]
        if SHIFTED:
            a += shift[:, None]
        log, sign, _, _ = log_score(a, exponent[:, None], SCORE, FAST)
        if EDGE or MASKED:
            seen = visible_keys(queries[:, None], keys[None, :], length, shown, strides[3], CAUSAL, MASKED)
            log = tl.where(seen, log, -float("inf"))
        if NORMALISED == "none":
            w = tl.exp2(log)
        else:
            higher = tl.maximum(largest, tl.max(log, 1))
            finite = tl.where(higher == -float("inf"), 0.0, higher)
            w = tl.exp2(log - finite[:, None])
            change = tl.exp2(largest - finite)
            largest = higher
            output *= change[:, None]
            total = total * change + tl.sum(w, 1)
            if NORMALISED == "ground":
                counts = (log >= floor[:, None]) | (log == -float("inf"))
                short = short * change + tl.sum(tl.where(counts, 0.0, tl.exp2(floor - finite)[:, None] - w), 1)
                below += tl.sum(tl.where(counts, 0.0, 1.0), 1)
        v = load(v_head, keys, strides[1], length, WIDTH_V, BLOCK_V, EDGE)
        output += tl.dot((w * sign).to(v.dtype), v, input_precision=PRECISION)
    return output, largest, total, short, below


@triton.jit
def forward(
    tensors, numbers, shown, results, q_strides, k_strides, v_strides, q_gate_strides, k_gate_strides, shown_strides,
    output_strides, sizes,
    WIDTH: tl.constexpr, WIDTH_V: tl.constexpr, WIDTH_G: tl.constexpr, BLOCK: tl.constexpr, BLOCK_V: tl.constexpr,
    BLOCK_G: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, SCORE: tl.constexpr, NORMALISED: tl.constexpr,
    CAUSAL: tl.constexpr, GATED: tl.constexpr, SHIFTED: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr,
    FAST: tl.constexpr,
):  # fmt: skip
    """Compute a block of queries: output, L, weight of the ground state or sink, and the part of Z that is t."""
    heads, length, gate_scale = sizes
    q, k, v, q_gate, k_gate = tensors
    output_at, _, _, _ = results
    n, first = tl.program_id(0), (tl.num_programs(1) - 1 - tl.program_id(1)) * ROWS  # longest rows first
    queries = first + tl.arange(0, ROWS)
    values = load_numbers(numbers, n, queries, length, SCORE, NORMALISED, GATED, SHIFTED)
    zero = tl.zeros([ROWS], tl.float32)
    largest = values[4] if NORMALISED == "ground" or NORMALISED == "sink" else zero - float("inf")
    total = zero + 1.0 if NORMALISED == "sink" else zero
    state = (tl.zeros([ROWS, BLOCK_V], tl.float32), largest, total, zero, zero)
    own = load(head_of(q, q_strides, n, heads), queries, q_strides[2], length, WIDTH, BLOCK)
    gate = own
    if GATED:
        gate = load(head_of(q_gate, q_gate_strides, n, heads), queries, q_gate_strides[2], length, WIDTH_G, BLOCK_G)
    query = (queries, own, gate)
    others = (
        head_of(k, k_strides, n, heads), head_of(v, v_strides, n, heads), head_of(k_gate, k_gate_strides, n, heads),
        head_of(shown, shown_strides, n, heads),
    )  # fmt: skip
    strides = (k_strides[2], v_strides[2], k_gate_strides[2], shown_strides[2])
    stop = tl.minimum(first + ROWS, length) if CAUSAL else length
    inner = (first if CAUSAL else length) // KEYS * KEYS
    state = _add_keys(
        state, 0, inner, query, values, others, strides, length, gate_scale, WIDTH, WIDTH_V, WIDTH_G, BLOCK,
        BLOCK_V, BLOCK_G, KEYS, SCORE, NORMALISED, CAUSAL, GATED, SHIFTED, MASKED, PRECISION, FAST, False,
    )  # fmt: skip
    state = _add_keys(
        state, inner, stop, query, values, others, strides, length, gate_scale, WIDTH, WIDTH_V, WIDTH_G, BLOCK,
        BLOCK_V, BLOCK_G, KEYS, SCORE, NORMALISED, CAUSAL, GATED, SHIFTED, MASKED, PRECISION, FAST, True,
    )  # fmt: skip
    output = _normalise(state, values[4], results, n, queries, length, NORMALISED)
    store(head_of(output_at, output_strides, n, heads), queries, output_strides[2], length, output, WIDTH_V, BLOCK_V)


@triton.jit
def _normalise(state, floor, results, n, queries, length, NORMALISED: tl.constexpr):
    """Divide sums by Z; store L, the weight of the ground state or sink, and the part of Z that is t."""
    output, largest, total, short, below = state
    _, logs, ground, floors = results
    if NORMALISED == "none":
        store_row(logs, n, queries, length, total)  # 0
    else:
        whole = total + short
        empty = whole == 0.0
        whole = tl.where(empty, 1.0, whole)
        largest = tl.where(largest == -float("inf"), 0.0, largest)
        output = output / whole[:, None]
        store_row(logs, n, queries, length, largest + tl.log2(whole))
        if NORMALISED == "sink":
            store_row(ground, n, queries, length, tl.exp2(floor - largest) / whole)
        if NORMALISED == "ground":
            store_row(ground, n, queries, length, tl.where(empty, 1.0, short / whole))
            store_row(floors, n, queries, length, below * tl.exp2(floor - largest) / whole)
    return output

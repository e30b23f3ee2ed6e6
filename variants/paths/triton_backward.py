"""The backward kernels for operators of one score, in Triton: one for queries, one for keys, without atomics.

With a, l, w, L, t of `ablate.variants.paths.triton_kernels`, and D from `ablate.variants.paths.triton_ops`:

    dl = |w| (sign(f) dp - A D)             dp = do.v - dground      A = 1 if l >= t or there is no t
    dl = |w| (sign(f) do.v - D)             with a sink
    da = dl l'(a)

In half precision, D is D + e in the kernel of keys. The kernel of queries knows e = sum_j dl + dt when its sums over
keys are done. It then lowers the sum of a number by e times its fall per unit of D.

Each gradient has one writer, which adds in the same order every time.
"""

import triton
import triton.language as tl

from ablate.variants.paths.triton_kernels import (
    LN2,
    head_of,
    load,
    load_numbers,
    log_score,
    row,
    store,
    store_row,
    suppression,
    visible_keys,
)


@triton.jit
def _gradients(
    s, g, dp, seen, numbers, slopes, SCORE: tl.constexpr, NORMALISED: tl.constexpr, GATED: tl.constexpr,
    SHIFTED: tl.constexpr, FAST: tl.constexpr, HIDES: tl.constexpr,
):  # fmt: skip
    """Return w, da, dl, -ddl/dD, -dda/dD, the gate's suppression and slope, and l / n; numbers broadcast to a tile."""
    factor, strength, exponent, shift, floor = numbers
    logs, shared, dground = slopes
    a = s * factor
    lowering, opening = s, s
    if GATED:
        lowering, opening = suppression(g, FAST)
        a -= strength * lowering
    if SHIFTED:
        a += shift
    log, sign, slope, power = log_score(a, exponent, SCORE, FAST)
    if HIDES:
        log = tl.where(seen, log, -float("inf"))
    w = tl.exp2(log - logs)
    counted = w
    if NORMALISED == "ground":
        dl = w * (sign * (dp - dground) - tl.where(log >= floor, shared, 0.0))
        counted = tl.where(log >= floor, w, 0.0)
    elif NORMALISED == "total" or NORMALISED == "sink":
        dl = w * (sign * dp - shared)
    else:
        dl = w * sign * dp
    return w * sign, dl * slope, dl, counted, counted * slope, lowering, opening, power


@triton.jit
def _load_slopes(slopes, n, places, length, NORMALISED: tl.constexpr):
    """Load L, D and the gradient of the ground state's weight."""
    logs, shared, dground, _ = slopes
    return (
        row(logs, n, places, length, True),
        row(shared, n, places, length, NORMALISED != "none"),
        row(dground, n, places, length, NORMALISED == "ground"),
    )


@triton.jit
def _add_keys(
    state, first, stop, query, numbers, slopes, heads, strides, length, gate_scale,
    WIDTH: tl.constexpr, WIDTH_V: tl.constexpr, WIDTH_G: tl.constexpr, BLOCK: tl.constexpr, BLOCK_V: tl.constexpr,
    BLOCK_G: tl.constexpr, KEYS: tl.constexpr, SCORE: tl.constexpr, NORMALISED: tl.constexpr,
    CAUSAL: tl.constexpr, GATED: tl.constexpr, SHIFTED: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr,
    FAST: tl.constexpr, EDGE: tl.constexpr,
):  # fmt: skip
    """Add the keys from `first` to `stop` to the gradients of a block of queries."""
    HIDES: tl.constexpr = EDGE or MASKED
    dq, dq_gate, dnumbers, falls, error = state
    queries, q, q_gate, doutput = query
    k_head, v_head, k_gate_head, shown = heads
    for start in range(first, stop, KEYS):
        keys = start + tl.arange(0, KEYS)
        k = load(k_head, keys, strides[0], length, WIDTH, BLOCK, EDGE)
        v = load(v_head, keys, strides[1], length, WIDTH_V, BLOCK_V, EDGE)
        s = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        dp = tl.dot(doutput, tl.trans(v), input_precision=PRECISION)
        g, k_gate, seen = s, k, s
        if GATED:
            k_gate = load(k_gate_head, keys, strides[2], length, WIDTH_G, BLOCK_G, EDGE)
            g = tl.dot(q_gate, tl.trans(k_gate), input_precision=PRECISION) * gate_scale
        if HIDES:
            seen = visible_keys(queries[:, None], keys[None, :], length, shown, strides[3], CAUSAL, MASKED)
        _, da, dl, counted, pull, lowering, opening, power = _gradients(
            s, g, dp, seen, numbers, slopes, SCORE, NORMALISED, GATED, SHIFTED, FAST, HIDES
        )
        # after the product with k, these sums spill more registers
        dnumbers = _add_numbers(dnumbers, da, dl, s, lowering, power, SCORE, GATED, SHIFTED, PRECISION)
        if NORMALISED != "none" and PRECISION != "ieee":
            error += tl.sum(dl, 1)
            falls = _add_numbers(falls, pull, counted, s, lowering, power, SCORE, GATED, SHIFTED, PRECISION)
        dq += tl.dot(da.to(k.dtype), k, input_precision=PRECISION)
        if GATED:
            dg = da * numbers[1] * opening
            dq_gate += tl.dot(dg.to(k_gate.dtype), k_gate, input_precision=PRECISION)
    return dq, dq_gate, dnumbers, falls, error


@triton.jit
def _add_numbers(
    sums, da, dl, s, lowering, power, SCORE: tl.constexpr, GATED: tl.constexpr, SHIFTED: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Add a tile to the gradients of queries' numbers; in float32 that of the factor follows from dq at the end."""
    factor, strength, exponent, shift = sums
    if PRECISION != "ieee":
        factor += tl.sum(da * s, 1)
    if GATED:
        strength -= tl.sum(da * lowering, 1)
    if SCORE == "ssa":
        exponent += tl.sum(dl * power, 1)
    if SHIFTED:
        shift += tl.sum(da, 1)
    return factor, strength, exponent, shift


@triton.jit
def _load_queries(
    q, q_gate, doutput, q_strides, q_gate_strides, doutput_strides, n, heads, queries, length, WIDTH: tl.constexpr,
    WIDTH_V: tl.constexpr, WIDTH_G: tl.constexpr, BLOCK: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_G: tl.constexpr,
    GATED: tl.constexpr,
):  # fmt: skip
    """Load a block of queries with their gate's channels, or themselves, and the gradients of their outputs."""
    own = load(head_of(q, q_strides, n, heads), queries, q_strides[2], length, WIDTH, BLOCK)
    gate = own
    if GATED:
        gate = load(head_of(q_gate, q_gate_strides, n, heads), queries, q_gate_strides[2], length, WIDTH_G, BLOCK_G)
    slope = load(head_of(doutput, doutput_strides, n, heads), queries, doutput_strides[2], length, WIDTH_V, BLOCK_V)
    return queries, own, gate, slope


@triton.jit
def _complete_error(error, slopes, exact, n, queries, length, NORMALISED: tl.constexpr, PRECISION: tl.constexpr):
    """Add the ground state's part to the error of D, and store D without it."""
    if NORMALISED != "none" and PRECISION != "ieee":
        error += row(slopes[3], n, queries, length, NORMALISED != "total")
        store_row(exact, n, queries, length, row(slopes[1], n, queries, length, True) + error)
    return error


@triton.jit
def backward_queries(
    tensors, numbers, shown, slopes, doutput, results, q_strides, k_strides, v_strides, q_gate_strides, k_gate_strides,
    shown_strides, doutput_strides, dq_strides, dq_gate_strides, sizes,
    WIDTH: tl.constexpr, WIDTH_V: tl.constexpr, WIDTH_G: tl.constexpr, BLOCK: tl.constexpr, BLOCK_V: tl.constexpr,
    BLOCK_G: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, SCORE: tl.constexpr, NORMALISED: tl.constexpr,
    CAUSAL: tl.constexpr, GATED: tl.constexpr, SHIFTED: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr,
    FAST: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of a block of queries and of its numbers."""
    heads, length, gate_scale = sizes
    q, k, v, q_gate, k_gate = tensors
    dq_at, dq_gate_at, _, _, _, _, exact = results
    n, first = tl.program_id(0), (tl.num_programs(1) - 1 - tl.program_id(1)) * ROWS  # longest rows first
    queries = first + tl.arange(0, ROWS)
    values = load_numbers(numbers, n, queries, length, SCORE, NORMALISED, GATED, SHIFTED)
    wide = (values[0][:, None], values[1][:, None], values[2][:, None], values[3][:, None], values[4][:, None])
    logs, shared, dground = _load_slopes(slopes, n, queries, length, NORMALISED)
    wide_slopes = (logs[:, None], shared[:, None], dground[:, None])
    query = _load_queries(
        q, q_gate, doutput, q_strides, q_gate_strides, doutput_strides, n, heads, queries, length, WIDTH, WIDTH_V,
        WIDTH_G, BLOCK, BLOCK_V, BLOCK_G, GATED,
    )  # fmt: skip
    others = (
        head_of(k, k_strides, n, heads), head_of(v, v_strides, n, heads), head_of(k_gate, k_gate_strides, n, heads),
        head_of(shown, shown_strides, n, heads),
    )  # fmt: skip
    strides = (k_strides[2], v_strides[2], k_gate_strides[2], shown_strides[2])
    zero = tl.zeros([ROWS], tl.float32)
    zeros = (zero, zero, zero, zero)
    state = (tl.zeros([ROWS, BLOCK], tl.float32), tl.zeros([ROWS, BLOCK_G], tl.float32), zeros, zeros, zero)
    stop = tl.minimum(first + ROWS, length) if CAUSAL else length
    inner = (first if CAUSAL else length) // KEYS * KEYS
    state = _add_keys(
        state, 0, inner, query, wide, wide_slopes, others, strides, length, gate_scale, WIDTH, WIDTH_V, WIDTH_G,
        BLOCK, BLOCK_V, BLOCK_G, KEYS, SCORE, NORMALISED, CAUSAL, GATED, SHIFTED, MASKED, PRECISION, FAST, False,
    )  # fmt: skip
    dq, dq_gate, dnumbers, falls, error = _add_keys(
        state, inner, stop, query, wide, wide_slopes, others, strides, length, gate_scale, WIDTH, WIDTH_V,
        WIDTH_G, BLOCK, BLOCK_V, BLOCK_G, KEYS, SCORE, NORMALISED, CAUSAL, GATED, SHIFTED, MASKED, PRECISION,
        FAST, True,
    )  # fmt: skip
    gain = 1.0 if SCORE == "ssa" else LN2
    error = _complete_error(error, slopes, exact, n, queries, length, NORMALISED, PRECISION)
    dfactor = tl.sum(dq * query[1].to(tl.float32), 1) if PRECISION == "ieee" else dnumbers[0]
    _store_numbers(results, dfactor, dnumbers, falls, error, gain, n, queries, length, SCORE, GATED, SHIFTED)
    dq *= (values[0] * gain)[:, None]
    store(head_of(dq_at, dq_strides, n, heads), queries, dq_strides[2], length, dq, WIDTH, BLOCK)
    if GATED:
        at = head_of(dq_gate_at, dq_gate_strides, n, heads)
        store(at, queries, dq_gate_strides[2], length, dq_gate * (gate_scale * gain), WIDTH_G, BLOCK_G)


@triton.jit
def _store_numbers(
    results, factor, sums, falls, error, gain, n, queries, length, SCORE: tl.constexpr, GATED: tl.constexpr,
    SHIFTED: tl.constexpr,
):  # fmt: skip
    """Store the gradients of queries' numbers, corrected by `error`."""
    _, _, dfactor, dstrength, dexponent, dshift, _ = results
    store_row(dfactor, n, queries, length, (factor - error * falls[0]) * gain)
    if GATED:
        store_row(dstrength, n, queries, length, (sums[1] - error * falls[1]) * gain)
    if SCORE == "ssa":
        store_row(dexponent, n, queries, length, (sums[2] - error * falls[2]) * LN2)
    if SHIFTED:
        store_row(dshift, n, queries, length, (sums[3] - error * falls[3]) * gain)


@triton.jit
def _add_queries(
    state, first, stop, key, numbers, slopes, n, heads, strides, length, gate_scale,
    WIDTH: tl.constexpr, WIDTH_V: tl.constexpr, WIDTH_G: tl.constexpr, BLOCK: tl.constexpr, BLOCK_V: tl.constexpr,
    BLOCK_G: tl.constexpr, ROWS: tl.constexpr, SCORE: tl.constexpr, NORMALISED: tl.constexpr,
    CAUSAL: tl.constexpr, GATED: tl.constexpr, SHIFTED: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr,
    FAST: tl.constexpr, EDGE: tl.constexpr,
):  # fmt: skip
    """Add the queries from `first` to `stop` to the gradients of a block of keys; tiles are [KEYS, ROWS]."""
    HIDES: tl.constexpr = EDGE or MASKED
    dk, dv, dk_gate = state
    keys, k, v, k_gate = key
    q_head, doutput_head, q_gate_head, shown = heads
    for start in range(first, stop, ROWS):
        queries = start + tl.arange(0, ROWS)
        factor, strength, exponent, shift, floor = load_numbers(
            numbers, n, queries, length, SCORE, NORMALISED, GATED, SHIFTED
        )
        wide = (factor[None, :], strength[None, :], exponent[None, :], shift[None, :], floor[None, :])
        logs, shared, dground = _load_slopes(slopes, n, queries, length, NORMALISED)
        wide_slopes = (logs[None, :], shared[None, :], dground[None, :])
        q = load(q_head, queries, strides[0], length, WIDTH, BLOCK)
        doutput = load(doutput_head, queries, strides[1], length, WIDTH_V, BLOCK_V)
        s = tl.dot(k, tl.trans(q), input_precision=PRECISION)
        dp = tl.dot(v, tl.trans(doutput), input_precision=PRECISION)
        g, q_gate, seen = s, q, s
        if GATED:
            q_gate = load(q_gate_head, queries, strides[2], length, WIDTH_G, BLOCK_G)
            g = tl.dot(k_gate, tl.trans(q_gate), input_precision=PRECISION) * gate_scale
        if HIDES:
            seen = visible_keys(queries[None, :], keys[:, None], length, shown, strides[3], CAUSAL, MASKED)
        w, da, _, _, _, _, opening, _ = _gradients(
            s, g, dp, seen, wide, wide_slopes, SCORE, NORMALISED, GATED, SHIFTED, FAST, HIDES
        )
        dv += tl.dot(w.to(doutput.dtype), doutput, input_precision=PRECISION)
        dk += tl.dot((da * wide[0]).to(q.dtype), q, input_precision=PRECISION)
        if GATED:
            dk_gate += tl.dot((da * wide[1] * opening).to(q_gate.dtype), q_gate, input_precision=PRECISION)
    return dk, dv, dk_gate


@triton.jit
def backward_keys(
    tensors, numbers, shown, slopes, doutput, results, q_strides, k_strides, v_strides, q_gate_strides, k_gate_strides,
    shown_strides, doutput_strides, dk_strides, dv_strides, dk_gate_strides, sizes,
    WIDTH: tl.constexpr, WIDTH_V: tl.constexpr, WIDTH_G: tl.constexpr, BLOCK: tl.constexpr, BLOCK_V: tl.constexpr,
    BLOCK_G: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, SCORE: tl.constexpr, NORMALISED: tl.constexpr,
    CAUSAL: tl.constexpr, GATED: tl.constexpr, SHIFTED: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr,
    FAST: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of a block of keys and values."""
    heads, length, gate_scale = sizes
    q, k, v, q_gate, k_gate = tensors
    dk_at, dv_at, dk_gate_at = results
    n, first = tl.program_id(0), tl.program_id(1) * KEYS
    keys = first + tl.arange(0, KEYS)
    own = load(head_of(k, k_strides, n, heads), keys, k_strides[2], length, WIDTH, BLOCK)
    gate = own
    if GATED:
        gate = load(head_of(k_gate, k_gate_strides, n, heads), keys, k_gate_strides[2], length, WIDTH_G, BLOCK_G)
    key = (keys, own, load(head_of(v, v_strides, n, heads), keys, v_strides[2], length, WIDTH_V, BLOCK_V), gate)
    others = (
        head_of(q, q_strides, n, heads), head_of(doutput, doutput_strides, n, heads),
        head_of(q_gate, q_gate_strides, n, heads), head_of(shown, shown_strides, n, heads),
    )  # fmt: skip
    strides = (q_strides[2], doutput_strides[2], q_gate_strides[2], shown_strides[2])
    state = (
        tl.zeros([KEYS, BLOCK], tl.float32), tl.zeros([KEYS, BLOCK_V], tl.float32),
        tl.zeros([KEYS, BLOCK_G], tl.float32),
    )  # fmt: skip
    begin = first // ROWS * ROWS if CAUSAL else 0
    inner = tl.cdiv(first + KEYS, ROWS) * ROWS if CAUSAL else 0
    state = _add_queries(
        state, begin, tl.minimum(inner, length), key, numbers, slopes, n, others, strides, length, gate_scale,
        WIDTH, WIDTH_V, WIDTH_G, BLOCK, BLOCK_V, BLOCK_G, ROWS, SCORE, NORMALISED, CAUSAL, GATED, SHIFTED, MASKED,
        PRECISION, FAST, True,
    )  # fmt: skip
    dk, dv, dk_gate = _add_queries(
        state, inner, length, key, numbers, slopes, n, others, strides, length, gate_scale, WIDTH, WIDTH_V,
        WIDTH_G, BLOCK, BLOCK_V, BLOCK_G, ROWS, SCORE, NORMALISED, CAUSAL, GATED, SHIFTED, MASKED, PRECISION,
        FAST, False,
    )  # fmt: skip
    gain = 1.0 if SCORE == "ssa" else LN2
    store(head_of(dk_at, dk_strides, n, heads), keys, dk_strides[2], length, dk * gain, WIDTH, BLOCK)
    store(head_of(dv_at, dv_strides, n, heads), keys, dv_strides[2], length, dv, WIDTH_V, BLOCK_V)
    if GATED:
        at = head_of(dk_gate_at, dk_gate_strides, n, heads)
        store(at, keys, dk_gate_strides[2], length, dk_gate * (gate_scale * gain), WIDTH_G, BLOCK_G)

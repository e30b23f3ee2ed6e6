-- The public interface. One row per what the comment says; the columns are stable.

-- Attempts whose rows do not count, since the result did not come from them. A later attempt began anew, or they train a
-- finished trial again and have not finished, or their records cannot be read.
CREATE OR REPLACE VIEW v_superfluous AS
FROM (SELECT trial, attempt FROM attempt UNION SELECT trial, attempt FROM recorded)
ANTI JOIN counted USING (trial, attempt);

-- Trials in which a value can be recorded twice, or recorded without counting. Their rows come from several attempts, or
-- from one that does not count or counts only up to a step. Other trials were evaluated later, or their result is in doubt.
CREATE OR REPLACE VIEW v_repeated AS
SELECT trial FROM recorded LEFT JOIN counted c USING (trial, attempt)
GROUP BY trial HAVING count(*) > 1 OR bool_or(c.trial IS NULL OR c.until IS NOT NULL)
UNION SELECT trial FROM evaluated UNION SELECT trial FROM doubt;

-- Attempts of such trials whose rows count. A trial whose result cannot be read, or is in doubt, has none.
CREATE OR REPLACE VIEW v_chosen AS
FROM counted WHERE trial IN (FROM v_repeated) AND trial NOT IN (SELECT trial FROM doubt WHERE NOT counts);

-- Finished trials of which some value may be missing: a shard is not served, and their end.json does not name their shards.
CREATE OR REPLACE VIEW v_unpromised AS
SELECT trial FROM attempt JOIN counted USING (trial, attempt)
WHERE status = 'ok' AND until IS NULL AND shards IS NULL AND EXISTS (FROM bad_shard);

-- later evaluation of a finished trial, and whether it counts: whether the attempt that it evaluated is the result
--   counts: whether the attempt is the trial's result
--   sources: version of each class of the evaluation and its trial and hash of each part of the user's code, by name
CREATE OR REPLACE VIEW v_evaluated AS
SELECT e.* EXCLUDE (shards, signature), f.last IS NOT DISTINCT FROM e.attempt AS counts
FROM evaluated e
LEFT JOIN (SELECT trial, max(attempt) AS last FROM attempt WHERE status = 'ok' GROUP BY trial) f USING (trial);

-- Shards of later evaluations. If two record the same value of a trial, the later one counts.
--   counts: whether the attempt is the trial's result
--   number: number that rows of this database have in their column shard
CREATE OR REPLACE VIEW v_later_shard AS
SELECT s.number, e.evaluation, e.ended, v.counts
FROM shard s JOIN (SELECT *, unnest(shards) AS file FROM evaluated) e USING (file)
JOIN v_evaluated v ON v.trial = e.trial AND v.attempt = e.attempt AND v.evaluation = e.evaluation;

-- measurement that counts
--   wall_s: since the start of the attempt that computed it
CREATE OR REPLACE VIEW v_metric AS
SELECT * EXCLUDE (shard) FROM metric WHERE trial NOT IN (FROM v_repeated)
UNION ALL
SELECT m.* EXCLUDE (shard)
FROM metric m JOIN v_chosen c USING (trial, attempt)
WHERE m.step <= coalesce(c.until, m.step)
QUALIFY m.attempt = max(m.attempt) OVER (PARTITION BY m.trial, step, name);

-- measurement that counts; `later` is the key of the evaluation that was made later, null for what the trial measured
--   later: key of the evaluation that was made later
CREATE OR REPLACE VIEW v_evaluation AS
SELECT * EXCLUDE (shard), NULL::VARCHAR AS later FROM evaluation WHERE trial NOT IN (FROM v_repeated)
UNION ALL
SELECT m.* EXCLUDE (shard), l.evaluation AS later
FROM evaluation m JOIN v_chosen c USING (trial, attempt)
LEFT JOIN v_later_shard l ON l.number = m.shard
WHERE m.step <= coalesce(c.until, m.step) AND coalesce(l.counts, true)
QUALIFY (m.attempt, coalesce(l.ended, 0), coalesce(l.evaluation, ''))
    = max((m.attempt, coalesce(l.ended, 0), coalesce(l.evaluation, ''))) OVER (PARTITION BY m.trial, step, name, point);

-- item of an evaluation, as measured in the attempt that counts
--   later: key of the evaluation that was made later
CREATE OR REPLACE VIEW v_item AS
SELECT * EXCLUDE (shard), NULL::VARCHAR AS later FROM item WHERE trial NOT IN (FROM v_repeated)
UNION ALL
SELECT m.* EXCLUDE (shard), l.evaluation AS later
FROM item m JOIN v_chosen c USING (trial, attempt)
LEFT JOIN v_later_shard l ON l.number = m.shard
WHERE m.step <= coalesce(c.until, m.step) AND coalesce(l.counts, true)
QUALIFY (m.attempt, coalesce(l.ended, 0), coalesce(l.evaluation, ''))
    = max((m.attempt, coalesce(l.ended, 0), coalesce(l.evaluation, ''))) OVER (PARTITION BY m.trial, step, name, point);

-- measurement that counts
CREATE OR REPLACE VIEW v_probe AS
SELECT * EXCLUDE (shard) FROM probe WHERE trial NOT IN (FROM v_repeated)
UNION ALL
SELECT m.* EXCLUDE (shard)
FROM probe m JOIN v_chosen c USING (trial, attempt)
WHERE m.step <= coalesce(c.until, m.step)
QUALIFY m.attempt = max(m.attempt) OVER (PARTITION BY m.trial, step, name, layer, head, point);

-- grid, trial that is done, source, name, point: the value at the last step. The last value may be in a shard that is in
-- quarantine. Then a value from before the run's last step counts only if end.json names the shards.
CREATE OR REPLACE VIEW v_final AS
WITH logged AS (
    SELECT l.trial, l.attempt, l.name, l.step, l.value, c.until
    FROM last_value l JOIN counted c USING (trial, attempt) WHERE l."table" = 'metric'
),
whole AS (FROM logged WHERE step <= coalesce(until, step)),
searched AS (       -- the last one is beyond the checkpoint, and no attempt that went on from it has the metric
    SELECT m.trial, m.attempt, m.name, m.step, m.value
    FROM metric m JOIN (
        SELECT DISTINCT b.trial, b.attempt, b.name, b.until FROM logged b JOIN trial t USING (trial)
        WHERE t.state = 'done' AND b.step > b.until AND NOT EXISTS (FROM whole w WHERE w.trial = b.trial AND w.name = b.name
                                               AND (w.step, w.attempt) > (b.until, b.attempt))
    ) b ON m.trial = b.trial AND m.attempt = b.attempt AND m.name = b.name AND m.step <= b.until
),
ended AS (
    (SELECT trial, 'evaluation' AS source, name, point, step, value, items, se_items FROM v_evaluation
     QUALIFY step = max(step) OVER (PARTITION BY trial, name))
    UNION ALL
    SELECT trial, 'metric', name, MAP {}::MAP(VARCHAR, DOUBLE), max(step), arg_max(value, (step, attempt)), NULL, NULL
    FROM (SELECT * EXCLUDE (until) FROM whole UNION ALL FROM searched) GROUP BY trial, name
)
SELECT g.grid, g.cell, g.label, g.operator, g.trial, g.seed,
       e.source, e.name, e.point, e.step, e.value, e.items, e.se_items
FROM grid_trial g JOIN trial t USING (trial) JOIN ended e USING (trial)
WHERE t.state = 'done' AND t.trial NOT IN (SELECT trial FROM doubt WHERE NOT counts)
  AND (e.step >= t.step OR t.trial NOT IN (FROM v_unpromised));

-- grid, cell, source, name, point: what its seeds say together; low and high are the 95 % t interval of the mean
--   mean: over seeds
--   sd: sample standard deviation over seeds; null for one seed
--   low: lower end of the 95 % t interval of the mean over seeds
--   high: upper end
--   geometric_mean: over seeds; null unless all are positive
--   geometric_low: lower end of the 95 % t interval of the mean of logarithms, as a value
--   geometric_high: upper end
CREATE OR REPLACE VIEW v_cell_stats AS
WITH scaled AS (
    SELECT *, max(CASE WHEN isfinite(value) THEN abs(value) END)
        OVER (PARTITION BY grid, cell, source, name, point) AS scale      -- squares of large losses overflow without
    FROM v_final
),
summed AS (
    SELECT grid, cell, label, operator, source, name, point, count(*) AS n,
           CASE WHEN isinf(avg(value)) AND bool_and(isfinite(value)) THEN any_value(scale) * avg(value / scale)
                ELSE avg(value) END AS mean,
           CASE WHEN count(*) > 1 AND bool_and(isfinite(value))
                THEN coalesce(any_value(scale) * stddev_samp(value / nullif(scale, 0)), 0) END AS sd,
           CASE WHEN bool_and(value > 0 AND NOT isnan(value)) THEN exp(avg(ln(CASE WHEN value > 0 THEN value END))) END
               AS geometric_mean,
           CASE WHEN bool_and(value > 0 AND isfinite(value))
                THEN stddev_samp(ln(CASE WHEN value > 0 AND isfinite(value) THEN value END)) END AS log_sd
    FROM scaled GROUP BY grid, cell, label, operator, source, name, point
)
SELECT s.grid, s.cell, s.label, s.operator, s.source, s.name, s.point, s.n, s.mean, s.sd,
       s.mean - q.q * s.sd / sqrt(s.n) AS low, s.mean + q.q * s.sd / sqrt(s.n) AS high, s.geometric_mean,
       s.geometric_mean * exp(-q.q * s.log_sd / sqrt(s.n)) AS geometric_low,
       s.geometric_mean * exp(q.q * s.log_sd / sqrt(s.n)) AS geometric_high
FROM summed s ASOF LEFT JOIN t_quantile q ON s.n - 1 >= q.df;

-- grid, cell other than the baseline, seed, source, name, point: the value beside the baseline's of the same seed
--   baseline_value: value of the baseline's trial of the same seed
--   difference: value minus baseline_value
--   log_ratio: ln(value / baseline_value); null unless both are positive
CREATE OR REPLACE VIEW v_pair AS
WITH ours AS MATERIALIZED (         -- first, so that no plan joins each cell with all others
    SELECT f.*, b.trial AS base FROM v_final f
    JOIN grid_trial g ON g.grid = f.grid AND g.trial = f.trial
    JOIN grid_trial b ON b.grid = g.grid AND b.cell = g.baseline AND b.seed = g.seed
)
SELECT f.grid, f.cell, f.label, f.operator, f.trial, f.seed, f.source, f.name, f.point, f.value,
       b.value AS baseline_value, f.value - b.value AS difference,
       CASE WHEN f.value > 0 AND b.value > 0 THEN
            ln(CASE WHEN f.value > 0 THEN f.value END) - ln(CASE WHEN b.value > 0 THEN b.value END) END AS log_ratio
FROM ours f
JOIN v_final b ON b.grid = f.grid AND b.trial = f.base AND b.source = f.source AND b.name = f.name AND b.point = f.point;

-- kind of failure, over the trials that count as failed
--   n: number of trials
--   example: key of one of them
CREATE OR REPLACE VIEW v_failure AS
WITH counted AS (
    SELECT a.* FROM attempt a JOIN trial t USING (trial)
    WHERE t.state = 'failed' AND a.status IS NOT NULL
    QUALIFY a.attempt = max(a.attempt) OVER (PARTITION BY a.trial)
)
SELECT fingerprint, min(reason) AS reason, count(*) AS n, min(trial) AS example,
       arg_min(message, trial) AS message, arg_min(traceback, trial) AS traceback
FROM counted GROUP BY fingerprint;

-- grid, trial: tags and the last note, where it or its grid has any
--   tags: tags of the trial and of its grid, sorted
--   note: the latest on the trial, or else on its grid
--   written: time of the note, in seconds since the epoch
CREATE OR REPLACE VIEW v_annotation AS
WITH tagged AS (
    SELECT g.grid, g.trial, list_sort(list(DISTINCT t.tag)) AS tags
    FROM grid_trial g JOIN tag t ON t.trial = g.trial OR t.grid = g.grid GROUP BY ALL
),
noted AS (
    SELECT g.grid, g.trial, arg_max(n.note, (n.trial IS NOT NULL, n.written)) AS note,
           arg_max(n.written, (n.trial IS NOT NULL, n.written)) AS written
    FROM grid_trial g JOIN note n ON n.trial = g.trial OR n.grid = g.grid GROUP BY ALL
)
SELECT g.grid, g.cell, g.label, g.trial, g.seed, coalesce(t.tags, []) AS tags, n.note, n.written
FROM grid_trial g LEFT JOIN tagged t USING (grid, trial) LEFT JOIN noted n USING (grid, trial)
WHERE t.trial IS NOT NULL OR n.trial IS NOT NULL;

-- grid, trial that is done by its records, but without a readable value of the grid's measure, or with a result in doubt that
-- does not count. A result whose end.json names its shards is in doubt if one is lost; else a value that it lacks was never
-- recorded.
CREATE OR REPLACE VIEW v_unreadable AS
SELECT g.grid, g.cell, g.label, g.trial, g.seed
FROM grid_trial g JOIN trial t USING (trial) JOIN grid h ON h.grid = g.grid
WHERE t.state = 'done' AND (t.trial IN (SELECT trial FROM doubt WHERE NOT counts)
  OR h.measure->>'$.name' IS NOT NULL AND NOT EXISTS (
    FROM last_value e JOIN counted c USING (trial, attempt)
    WHERE e."table" IN ('evaluation', 'metric') AND e.trial = t.trial AND e.name = h.measure->>'$.name'
      AND e.step <= coalesce(c.until, e.step) AND (e.step >= t.step OR t.trial NOT IN (FROM v_unpromised)))
  AND EXISTS (FROM attempt a JOIN counted c USING (trial, attempt)
              WHERE a.trial = t.trial AND a.status = 'ok' AND c.until IS NULL AND a.shards IS NULL)
  AND (EXISTS (FROM bad_shard)      -- a name that no trial at all has recorded is misspelt, not lost
       OR EXISTS (FROM last_value e WHERE e."table" IN ('evaluation', 'metric') AND e.name = h.measure->>'$.name'
                  AND e.shard NOT IN (SELECT number FROM v_later_shard))));  -- nor has each trial been evaluated later

-- grid, cell: how far it is; unreadable ones are among those that are done
--   planned: trials of the cell
--   done: trials in that state, as are the next five
--   failed: its latest attempt failed
--   running: a worker trains it
--   stopped: its worker left it at a checkpoint
--   lost: its worker is gone without a word
--   pending: not begun
--   unreadable: trials that are done without a readable result
CREATE OR REPLACE VIEW v_progress AS
SELECT g.grid, g.cell, g.label, g.operator, count(*) AS planned,
       count(*) FILTER (WHERE t.state = 'done') AS done,
       count(*) FILTER (WHERE t.state = 'failed') AS failed,
       count(*) FILTER (WHERE t.state = 'running') AS running,
       count(*) FILTER (WHERE t.state = 'stopped') AS stopped,
       count(*) FILTER (WHERE t.state = 'lost') AS lost,
       count(*) FILTER (WHERE t.state = 'pending') AS pending,
       count(u.trial) AS unreadable
FROM grid_trial g JOIN trial t USING (trial) LEFT JOIN v_unreadable u ON u.grid = g.grid AND u.trial = g.trial
GROUP BY g.grid, g.cell, g.label, g.operator;

-- grid, trial that is done: cost of the attempts that its result came from. A killed attempt, or one whose record cannot be
-- read, has no cost (`missing_attempts`): then every sum is null, and a rate is over the other attempts. A quantity that
-- one attempt could not measure is null. Steps that compiled count in no rate, neither their seconds nor their work.
--   attempts: that the result came from
--   missing_attempts: attempts that were killed or whose record cannot be read
--   steps: steps of training
--   tokens: trained on
--   train_s: seconds of training
--   tokens_per_s: in the steps that compiled nothing
--   flops_per_s: operations of the operator's definition, forward and backward, per second
--   flop_utilisation: that over what one large matrix product reaches there
--   joules: energy of the whole processors or GPUs
--   joules_per_token: joules over tokens
--   probe_share: share of the seconds that probing took
--   compile_s: seconds of the steps that compiled
--   refit_s: seconds of evaluation that refits of knock-outs took
CREATE OR REPLACE VIEW v_cost AS
WITH told AS (
    SELECT c.trial, a.memory_bytes, (a.cost->>'$.steps')::BIGINT AS steps, (a.cost->>'$.tokens')::BIGINT AS tokens,
           (a.cost->>'$.flops')::DOUBLE AS flops, (a.cost->>'$.train_s')::DOUBLE AS train_s,
           (a.cost->>'$.evaluate_s')::DOUBLE AS evaluate_s, (a.cost->>'$.probe_s')::DOUBLE AS probe_s,
           coalesce((a.cost->>'$.compile_s')::DOUBLE, 0) AS compile_s, (a.cost->>'$.joules')::DOUBLE AS joules,
           coalesce((a.cost->>'$.refit_s')::DOUBLE, 0) AS refit_s,
           CASE WHEN a.cost->>'$.compile_s' IS NULL THEN 0 ELSE (a.cost->>'$.compile_tokens')::DOUBLE END
               AS compile_tokens,
           CASE WHEN a.cost->>'$.compile_s' IS NULL THEN 0 ELSE (a.cost->>'$.compile_flops')::DOUBLE END
               AS compile_flops,
           (a.cost->>'$.peak_flops_per_s')::DOUBLE AS peak, a.cost->>'$.steps' IS NOT NULL AS told
    FROM counted c JOIN trial t ON t.trial = c.trial AND t.state = 'done'
    LEFT JOIN attempt a ON a.trial = c.trial AND a.attempt = c.attempt
),
measured AS (
    SELECT *, train_s - compile_s AS rated_s, tokens - compile_tokens AS rated_tokens,
           flops - compile_flops AS rated_flops FROM told
),
summed AS (
    SELECT trial, count(*) AS attempts, count(*) FILTER (WHERE NOT told) AS missing, sum(steps)::BIGINT AS steps,
           CASE WHEN count(tokens) = count(*) FILTER (WHERE told) THEN sum(tokens)::BIGINT END AS tokens,
           sum(train_s) AS train_s, sum(evaluate_s) AS evaluate_s,
           sum(probe_s) AS probe_s, sum(compile_s) AS compile_s, sum(refit_s) AS refit_s, sum(rated_s) AS rated_s,
           CASE WHEN count(rated_tokens) = count(*) FILTER (WHERE told) THEN sum(rated_tokens) END AS rated_tokens,
           CASE WHEN count(rated_flops) = count(*) FILTER (WHERE told) THEN sum(rated_flops) END AS rated_flops,
           CASE WHEN count(joules) = count(*) FILTER (WHERE told) THEN sum(joules) END AS joules,
           max(memory_bytes) AS memory_bytes,
           sum(rated_flops) FILTER (WHERE peak IS NOT NULL) AS known_flops,
           sum(rated_s * peak) FILTER (WHERE rated_flops IS NOT NULL) AS possible_flops
    FROM measured GROUP BY trial
)
SELECT g.grid, g.cell, g.label, g.operator, g.trial, g.seed, s.attempts, s.missing AS missing_attempts,
       CASE WHEN s.missing = 0 THEN s.steps END AS steps, CASE WHEN s.missing = 0 THEN s.tokens END AS tokens,
       CASE WHEN s.missing = 0 THEN s.train_s END AS train_s,
       nullif(s.rated_tokens, 0) / nullif(s.rated_s, 0) AS tokens_per_s,
       nullif(s.rated_flops, 0) / nullif(s.rated_s, 0) AS flops_per_s,
       nullif(s.known_flops, 0) / nullif(s.possible_flops, 0) AS flop_utilisation,
       s.memory_bytes, CASE WHEN s.missing = 0 THEN s.joules END AS joules,
       s.joules / nullif(s.tokens, 0) AS joules_per_token,
       s.probe_s / nullif(s.train_s + s.evaluate_s + s.probe_s, 0) AS probe_share,
       CASE WHEN s.missing = 0 THEN s.compile_s END AS compile_s,
       CASE WHEN s.missing = 0 THEN s.refit_s END AS refit_s
FROM grid_trial g JOIN summed s USING (trial);

-- cell of a plan whose operator is one that the papers ran, whatever it is called here; arguments are those that the
-- paper gives. A model with sink tokens has none: they move every position, and to paper 004 they are another design
CREATE OR REPLACE VIEW v_published_operator AS
WITH planned AS (
    SELECT cell, any_value(json_merge_patch(spec->'$.operator', json_object('extra', json_object(
               'learned_value', json_object('norm', round(TRY_CAST(spec->>'$.operator.extra.learned_value.init' AS DOUBLE)
                   * sqrt(TRY_CAST(spec->>'$.model.width' AS DOUBLE) / TRY_CAST(spec->>'$.model.heads' AS DOUBLE)), 6)))
           ))) AS made
    FROM trial WHERE spec IS NOT NULL AND coalesce(TRY_CAST(spec->>'$.model.sink_tokens' AS INTEGER), 0) = 0
    GROUP BY cell
),
named AS (
    SELECT d.made, o.operator, o.arguments
    FROM (SELECT DISTINCT made FROM planned) d JOIN published_operator o
        ON len(list_filter(map_entries(map_concat(o.kinds, o.numbers)),
                           lambda e: json_extract(d.made, e.key)::VARCHAR IS DISTINCT FROM e.value)) = 0
)
SELECT p.cell, n.operator, n.arguments FROM planned p JOIN named n USING (made);

-- published cell, own cell of the same operator, layers, kind of task and measurement. The row has the printed value, and
-- the own mean over seeds with its 95 % t interval in the printed unit. If the table spans decades (published.scale), the mean is
-- geometric and the interval is of logarithms. Models, data and budgets of the two differ.
--   baseline: whether the table compares others with it
--   model: as the paper calls it
--   value: printed; null where the paper prints a dash
--   own_mean: mean over the own seeds; null where the scale cannot take a value
--   own_low: lower end of its 95 % t interval; null below three seeds
--   own_high: upper end
--   unusable: what `trust` says forbids to compare with it
CREATE OR REPLACE VIEW v_published AS
WITH planned AS (
    SELECT cell, any_value(spec->>'$.task.kind') AS task,
           any_value(coalesce((spec->>'$.placement.share')::DOUBLE, 1)) AS share,
           any_value(coalesce(spec->>'$.placement.side', 'top')) AS side
    FROM trial WHERE spec IS NOT NULL GROUP BY cell
)
SELECT p.id, p.paper, p.paper_table, p.row_label, p.column_label, p.metric, p.operator, p.arguments, p.baseline,
       p.placement, p.model, p.setup, p.unit, p.better, p.value, p.uncertainty, p.uncertainty_is, p.binomial_se, p.trust,
       s.grid, s.cell, s.label, s.name, s.point, s.n,
       CASE WHEN p.scale = 'log' THEN s.geometric_mean ELSE s.mean END / p.factor AS own_mean,
       CASE WHEN s.n < 3 THEN NULL WHEN p.scale = 'log' THEN s.geometric_low ELSE s.low END / p.factor
           AS own_low,
       CASE WHEN s.n < 3 THEN NULL WHEN p.scale = 'log' THEN s.geometric_high ELSE s.high END / p.factor
           AS own_high,
       p.unusable
FROM published p
JOIN v_published_operator o ON o.operator = p.operator AND o.arguments = p.arguments
JOIN planned w ON w.cell = o.cell AND w.task IS NOT DISTINCT FROM coalesce(p.task, w.task)
    AND coalesce(p.placement, '') IN ('', CASE WHEN w.share = 1 AND w.side IN ('top', 'bottom') THEN 'all layers'
                                               WHEN w.share < 1 THEN w.side || format(' {:g} %', 100 * w.share)
                                               ELSE w.side || ' layers' END)
JOIN v_cell_stats s ON s.cell = o.cell AND s.name = p.measurement
    AND len(list_filter(map_entries(p.point), lambda e: s.point[e.key] IS DISTINCT FROM e.value)) = 0;

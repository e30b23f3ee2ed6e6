-- Questions with an argument: SELECT ... FROM final('mse'). Names of measurements are those of v_final. A name that
-- nothing has is an error that says which there are; where there are none yet, there are no rows.

-- `word` if it is NULL, among `words`, or there are none of these; otherwise an error that begins with `said`.

CREATE OR REPLACE MACRO _known(word, said, words) AS
CASE WHEN word IS NULL OR coalesce(len(words), 0) = 0 OR list_contains(words, word) THEN word
     ELSE error(said || ' ''' || word || '''; there are [''' || array_to_string(words[:12], ''', ''') || CASE WHEN len(words) > 12
         THEN format(''' and {} more]', len(words) - 12) ELSE ''']' END || coalesce(
         (SELECT '; did you mean ''' || arg_min(near, damerau_levenshtein(lower(near), lower(word))) || '''?'
          FROM (SELECT unnest(words) AS near) WHERE 3 * damerau_levenshtein(lower(near), lower(word)) <= len(word)),
         '')) END;

-- `measured` if it is recorded in one of the tables `kinds`, or is the measure of a grid; otherwise an error.

CREATE OR REPLACE MACRO _recorded(measured, kinds) AS (
    SELECT _known(measured, 'nothing is recorded as', names) FROM (
        SELECT list(DISTINCT name ORDER BY name) AS names FROM (
            SELECT name FROM last_value WHERE list_contains(kinds, "table")
            UNION ALL SELECT g.measure->>'$.name' FROM grid g
            WHERE list_contains(kinds, 'evaluation') AND g.measure IS NOT NULL AND EXISTS (FROM last_value))));

-- final value of a measurement, by grid, trial and point
CREATE OR REPLACE MACRO final(measured) AS TABLE
SELECT * FROM v_final WHERE name = _recorded(measured, ['metric', 'evaluation']);

-- final value of a measurement beside that of another cell of the same seed: the grid's baseline, or the one that has the
-- label `against`
--   baseline_value: value of the other cell's trial of the same seed
--   difference: value minus baseline_value
--   log_ratio: ln(value / baseline_value); null unless both are positive
CREATE OR REPLACE MACRO paired(measured, against := NULL) AS TABLE
WITH other AS (
    SELECT DISTINCT grid, cell, baseline AS other FROM grid_trial WHERE against IS NULL
    UNION SELECT g.grid, g.cell, o.cell FROM grid_trial g JOIN grid_trial o USING (grid) WHERE o.label = (
        SELECT _known(against, 'no cell has the label', labels)
        FROM (SELECT list(DISTINCT label ORDER BY label) AS labels FROM grid_trial))
),
ours AS MATERIALIZED (              -- as in v_pair
    SELECT f.*, o.other FROM v_final f JOIN other o ON o.grid = f.grid AND o.cell = f.cell AND o.other <> f.cell
    WHERE f.name = _recorded(measured, ['metric', 'evaluation'])
)
SELECT f.grid, f.cell, f.label, f.operator, f.trial, f.seed, f.source, f.name, f.point, f.value,
       b.value AS baseline_value, f.value - b.value AS difference,
       CASE WHEN f.value > 0 AND b.value > 0 THEN
            ln(CASE WHEN f.value > 0 THEN f.value END) - ln(CASE WHEN b.value > 0 THEN b.value END) END AS log_ratio
FROM ours f
JOIN v_final b ON b.grid = f.grid AND b.cell = f.other AND b.seed = f.seed
    AND b.source = f.source AND b.name = f.name AND b.point = f.point
WHERE b.name = measured;

-- best level of an axis (its name or its path) for each combination of the others. Among the levels with the most seeds it
-- has the best mean, on the scale of the grid's measure. `prefer` is 'lower' or 'higher'; the default is the direction of
-- the grid's measure, and 'lower' for other measurements. The mean of a level that was chosen by it is too good:
-- `remark` says so, and `ablate table` compares on other seeds.
--   rest: JSON: the other axes
--   level: the chosen one
--   mean: over the seeds of the chosen level
--   better: lower or higher
--   levels: that have a value
--   least_n: fewest seeds that one of them has
--   remark: what to mind
CREATE OR REPLACE MACRO best_over(over_axis, measured, prefer := NULL) AS TABLE
WITH level AS (
    SELECT DISTINCT g.grid, g.cell, g.label,
           g.axes->>('$."' || replace(replace(a.name, '\', '\\'), '"', '\"') || '"') AS level,
           json_merge_patch(g.axes, json_object(a.name, NULL)) AS rest
    FROM grid_trial g JOIN axis a ON a.grid = g.grid
    WHERE (SELECT _known(over_axis, 'there is no axis', names) FROM (
        SELECT list(DISTINCT name ORDER BY name) AS names FROM (SELECT name FROM axis UNION ALL SELECT path FROM axis)))
        IN (a.name, a.path)
),
scaled AS (
    SELECT f.grid, f.cell, f.source, f.name, f.point, CASE WHEN isfinite(f.value) THEN CASE
               CASE WHEN h.measure->>'$.name' = f.name THEN coalesce(h.measure->>'$.scale', 'log') ELSE 'linear' END
               WHEN 'log' THEN ln(CASE WHEN f.value > 0 THEN f.value END)
               WHEN 'logit' THEN ln(CASE WHEN f.value > 0 AND f.value < 1 THEN f.value / (1 - f.value) END)
               ELSE f.value END END AS units
    FROM v_final f JOIN grid h ON h.grid = f.grid WHERE f.name = measured
),
usable AS (
    SELECT grid, cell, source, name, point, count(units) AS known, avg(units) AS centre
    FROM scaled GROUP BY grid, cell, source, name, point
),
judged AS (
    SELECT l.*, s.source, s.name, s.point, s.n, s.mean, u.known, u.centre,
           coalesce(_known(prefer, 'what is better is not', ['higher', 'lower']), CASE WHEN h.measure->>'$.name' = s.name THEN h.measure->>'$.better' END, 'lower') AS better
    FROM level l JOIN v_cell_stats s ON s.grid = l.grid AND s.cell = l.cell JOIN grid h ON h.grid = l.grid
    JOIN usable u ON u.grid = s.grid AND u.cell = s.cell AND u.source = s.source AND u.name = s.name AND u.point = s.point
    WHERE s.name = _recorded(measured, ['metric', 'evaluation'])
)
SELECT grid, rest, level, label, cell, source, name, point, n, mean, better, count(*) OVER beside AS levels,
       min(n) OVER beside AS least_n, 'chosen on these seeds: the mean is too good' AS remark
FROM judged
WINDOW beside AS (PARTITION BY grid, rest, source, name, point)
QUALIFY row_number() OVER (PARTITION BY grid, rest, source, name, point
                           ORDER BY known DESC, CASE WHEN better = 'higher' THEN -centre ELSE centre END, level) = 1;

-- training metric by step, with the grid's words
--   wall_s: since the start of the attempt that computed it
CREATE OR REPLACE MACRO curve(measured) AS TABLE
SELECT g.grid, g.cell, g.label, g.operator, m.trial, g.seed, m.step, m.value, m.wall_s
FROM v_metric m JOIN grid_trial g USING (trial) WHERE m.name = _recorded(measured, ['metric']);

-- value of a probe at the last step that a trial was probed at, with the grid's words; also of trials that failed
--   state: done, failed, running, stopped, lost or pending, as of the last ingest
CREATE OR REPLACE MACRO last_probe(measured) AS TABLE
SELECT g.grid, g.cell, g.label, g.operator, p.trial, g.seed, t.state, p.step, p.name, p.layer, p.head, p.point, p.value
FROM v_probe p JOIN grid_trial g USING (trial) JOIN trial t USING (trial)
WHERE p.name = _recorded(measured, ['probe'])
QUALIFY p.step = max(p.step) OVER (PARTITION BY g.grid, p.trial);

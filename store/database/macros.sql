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

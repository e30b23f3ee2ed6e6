-- The tables of the store. Everything in them is read from files of the campaign; nothing is written here first.
-- "columns of X" stands for those that follow from the fields of X in store/files/records.py.
-- Columns that mean the same everywhere:
--   trial: key of the trial, 32 hexadecimal digits
--   cell: key of the cell: the trial without its seed
--   attempt: number of the attempt, from 1
--   grid: name of the grid
--   label: the cell in words
--   operator: name of the operator
--   seed: replicate; trials of one seed are pairs
--   step: steps of training done
--   name: of the measurement
--   point: where on its evaluation grid it was taken: coordinate -> value; empty for one value
--   value: as measured, in the unit of the measurement; NaN and infinities are data
--   items: how many items the value is the mean of
--   se_items: standard error over these items; null where none is known
--   layer: of the model, from 0; null for the whole model
--   head: of the layer, from 0; null for the whole layer
--   submission: id of the `run` that asked for it
--   worker: number of the worker in its submission
--   host: name of the machine
--   device: what it was computed on: cpu, or the name of the GPU
--   threads: of the processor
--   versions: version of each package, by name
--   data: what was read, by hash
--   reason: in one word or sentence
--   message: of the error, as it was raised
--   traceback: of the error; null for failures that have none
--   wall_s: seconds on the clock
--   train_s: seconds of training
--   evaluate_s: seconds of evaluating
--   probe_s: seconds of probing
--   parameters: of the model
--   operator_parameters: of the numbers of its operators
--   memory_bytes: most memory in use at a time
--   spec: the whole spec
--   kind: of the spec
--   shard: number of the shard that brought the row
--   file: path in the campaign, or name of the shard
--   signature: inode, size and time of change of what was read
--   found: when it was found, in seconds since the epoch
--   n: number of seeds
--   source: evaluation, or metric of the training
--   own_mean: mean over seeds of the own cell

-- fact about the store
CREATE TABLE meta (
    name VARCHAR NOT NULL,          -- name of the fact
    value VARCHAR NOT NULL          -- as text
);

-- What was planned -------------------------------------------------------------------------------------------------

-- grid of the campaign
CREATE TABLE grid (
    -- columns of Header
    header JSON NOT NULL            -- the whole grids/<name>.json
);

-- axis of a grid
CREATE TABLE axis (
    grid VARCHAR NOT NULL,
    position INTEGER NOT NULL,      -- among the axes of the grid, from 0
    -- columns of PlannedAxis
    type VARCHAR NOT NULL           -- type of the column in grid_<name>: BIGINT, DOUBLE, BOOLEAN or VARCHAR
);

-- trial of a grid
CREATE TABLE grid_trial (
    -- columns of PlanLine
    position BIGINT NOT NULL,       -- in execution order, from 0
    baseline VARCHAR                -- cell that its cell is compared with; null for a baseline
);

-- Trial lines of every grid and every submission; `trial` below is made from them.
CREATE TABLE planned (
    source VARCHAR NOT NULL,        -- 'grids/<name>' or 'submissions/<id>'
    trial VARCHAR NOT NULL,
    cell VARCHAR NOT NULL,
    operator VARCHAR NOT NULL,
    seed BIGINT NOT NULL,
    spec JSON NOT NULL
);

-- What happened ----------------------------------------------------------------------------------------------------

-- trial of the campaign, with its state as of the last ingest
CREATE TABLE trial (
    trial VARCHAR NOT NULL,
    cell VARCHAR,                   -- null when no readable plan holds the trial
    operator VARCHAR,
    seed BIGINT,
    task VARCHAR,                   -- its kind
    spec JSON,
    state VARCHAR NOT NULL,         -- done, failed, running, stopped, lost or pending, as of the last ingest
    reason VARCHAR,                 -- failure of the last attempt that ended; also while another is at work
    attempts INTEGER NOT NULL,      -- begun so far
    step BIGINT,                    -- reached by the attempt that counts: the one that is ok, or the last that ended
    wall_s DOUBLE,                  -- seconds of all ended attempts
    parameters BIGINT,
    operator_parameters BIGINT
);

-- execution of a trial: its start.json and end.json
CREATE TABLE attempt (
    trial VARCHAR NOT NULL,
    attempt INTEGER NOT NULL,
    -- columns of Start or null
    resumed_attempt INTEGER,        -- whose checkpoint it went on from; null where it began anew
    resumed_step BIGINT,            -- step of that checkpoint
    alive BOOLEAN NOT NULL,         -- had not ended and its process was there, as of the last ingest
    -- columns of End or null
    shards VARCHAR[],               -- files that hold the rows that its result rests on; null if an earlier release wrote it
    signature VARCHAR NOT NULL      -- state of start.json and end.json when they were read
);

-- value of a training metric, of every attempt
CREATE TABLE metric (
    trial VARCHAR NOT NULL,
    attempt INTEGER NOT NULL,
    step BIGINT NOT NULL,
    name VARCHAR NOT NULL,
    value DOUBLE NOT NULL,
    wall_s DOUBLE NOT NULL,         -- since the start of the attempt that computed it
    shard INTEGER NOT NULL          -- the number of the shard that brought it
);

-- value of an evaluation, of every attempt
CREATE TABLE evaluation (
    trial VARCHAR NOT NULL,
    attempt INTEGER NOT NULL,
    step BIGINT NOT NULL,
    name VARCHAR NOT NULL,
    point MAP(VARCHAR, DOUBLE) NOT NULL,
    value DOUBLE NOT NULL,
    items BIGINT NOT NULL,
    se_items DOUBLE,
    shard INTEGER NOT NULL
);

-- value of one item of an evaluation, of every attempt
CREATE TABLE item (
    trial VARCHAR NOT NULL,
    attempt INTEGER NOT NULL,
    step BIGINT NOT NULL,
    name VARCHAR NOT NULL,          -- name of the mean over items
    point MAP(VARCHAR, DOUBLE) NOT NULL,
    item VARCHAR NOT NULL,          -- the same for all models
    value DOUBLE NOT NULL,
    shard INTEGER NOT NULL
);

-- value of a probe, of every attempt
CREATE TABLE probe (
    trial VARCHAR NOT NULL,
    attempt INTEGER NOT NULL,
    step BIGINT NOT NULL,
    name VARCHAR NOT NULL,
    layer SMALLINT,
    head SMALLINT,
    point MAP(VARCHAR, DOUBLE) NOT NULL,
    value DOUBLE NOT NULL,
    shard INTEGER NOT NULL
);

-- Evaluations that a finished trial was given later (`ablate evaluate`); their rows are among the others.
CREATE TABLE evaluated (
    -- columns of Evaluated
    signature VARCHAR NOT NULL      -- state of the record when it was read
);

-- Attempts that the result of a trial came from: the latest that is ok, or else the latest that began, and those whose
-- checkpoints it went on from. Rows of other attempts do not count.
CREATE TABLE counted (
    trial VARCHAR NOT NULL,
    attempt INTEGER NOT NULL,
    until BIGINT                    -- step of the checkpoint that was gone on from: no row beyond it counts; null for the last
);

-- Attempts that recorded rows: only trials with several of them need the search for the latest.
CREATE TABLE recorded (
    trial VARCHAR NOT NULL,
    attempt INTEGER NOT NULL
);

-- The last value of each measurement of an attempt in a shard. It is inserted with the shard's rows, so that no view
-- searches the long tables for it.
CREATE TABLE last_value (
    shard INTEGER NOT NULL,         -- the number of the shard
    "table" VARCHAR NOT NULL,       -- where the rows are
    trial VARCHAR NOT NULL,
    attempt INTEGER NOT NULL,
    name VARCHAR NOT NULL,
    step BIGINT NOT NULL,           -- the last one of this name
    value DOUBLE                    -- value of the metric at that step; null if it has several
);

-- Finished trial whose result is in doubt. A shard that its end.json names is not served, or two finished attempts of the
-- same code disagree.
CREATE TABLE doubt (
    trial VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,          -- lost: rows are missing; disagree: so do two attempts
    reason VARCHAR NOT NULL,
    counts BOOLEAN NOT NULL         -- whether the result counts; attempts that ran alike on the CPU must be equal
);

-- What it shows ----------------------------------------------------------------------------------------------------

-- verdict about a cell of a grid, by the planned measure and baseline, as `ablate table` has it
CREATE TABLE verdict (
    grid VARCHAR NOT NULL,
    cell VARCHAR NOT NULL,
    label VARCHAR NOT NULL,
    operator VARCHAR,
    baseline VARCHAR NOT NULL,      -- cell that it is compared with
    verdict VARCHAR NOT NULL,       -- better, worse, equivalent, off, real, size unproven, undecided or no verdict
    value DOUBLE,                   -- mean of the measure over the runs that are compared
    baseline_value DOUBLE,          -- that of the baseline
    difference DOUBLE,              -- mean difference in units of the measure's scale
    low DOUBLE,                     -- lower end of the interval of this comparison alone
    high DOUBLE,                    -- upper end
    percent DOUBLE,                 -- difference in per cent of the baseline's value
    p DOUBLE,                       -- of no difference
    p_holm DOUBLE,                  -- adjusted over all comparisons of the grid
    pairs BIGINT,                   -- seeds that both have
    planned BIGINT,                 -- seeds that both should have
    reason VARCHAR,                 -- why the verdict is this one
    doubt VARCHAR,                  -- the doubt that matters most; null for none, and without a claim
    headline BOOLEAN NOT NULL,      -- a claim without a check whose answer is no or unknown
    digest VARCHAR NOT NULL         -- of everything that it was computed from, and release of the rules
);

-- answer of a check about a verdict
CREATE TABLE verdict_check (
    grid VARCHAR NOT NULL,
    cell VARCHAR NOT NULL,
    "check" VARCHAR NOT NULL,       -- on, tuned, finished, noise or control
    answer VARCHAR NOT NULL,        -- yes, no, unknown, or - if the question does not arise
    word VARCHAR NOT NULL,          -- of on: what leaving the component out shows; empty for others
    reason VARCHAR NOT NULL,        -- the answer in a sentence
    number DOUBLE                   -- number that the answer is based on
);

-- What was read ----------------------------------------------------------------------------------------------------

-- Tag on a trial or on a grid.
CREATE TABLE tag (
    trial VARCHAR,                  -- null for a tag on a grid
    grid VARCHAR,                   -- null for a tag on a trial
    tag VARCHAR NOT NULL            -- the word
);

-- Note on a trial or on a grid.
CREATE TABLE note (
    trial VARCHAR,                  -- null for a note on a grid
    grid VARCHAR,                   -- null for a note on a trial
    written DOUBLE NOT NULL,        -- seconds since the epoch
    note VARCHAR NOT NULL           -- the text
);

-- Trials that were removed. A record of a submission plans them no more.
CREATE TABLE removal (
    trial VARCHAR NOT NULL,
    last INTEGER NOT NULL           -- attempt that was removed; 0 if the trial had none
);

-- Attempts whose rows are left out, because they were removed and are not back.
CREATE TABLE left_out (
    trial VARCHAR NOT NULL,
    attempt INTEGER NOT NULL
);

-- The ledger: a row is inserted in the transaction that inserts the shard's rows, so nothing is counted twice.
CREATE TABLE shard (
    blake2b VARCHAR PRIMARY KEY,    -- hash of the file
    number INTEGER NOT NULL,        -- number that rows of this database have in their column shard
    file VARCHAR NOT NULL,
    "table" VARCHAR NOT NULL,       -- that its rows belong to
    rows BIGINT NOT NULL,           -- how many
    bytes BIGINT NOT NULL,          -- size of the file
    schema INTEGER NOT NULL,        -- version of the file format
    submission VARCHAR NOT NULL,
    worker BIGINT NOT NULL,
    sequence INTEGER NOT NULL,      -- place among the worker's shards, from 0
    later BOOLEAN NOT NULL,         -- true if it holds an evaluation made after training; its record names it
    inside VARCHAR,                 -- larger shard that has its rows now; null if its own file has them
    signature VARCHAR NOT NULL,     -- inode, size and time of change when its bytes were last verified
    ingested DOUBLE NOT NULL        -- when, in seconds since the epoch
);

-- Shards that are not served. A good delivery under the same name removes the row.
CREATE TABLE bad_shard (
    file VARCHAR NOT NULL,
    reason VARCHAR NOT NULL,
    signature VARCHAR NOT NULL,
    found DOUBLE NOT NULL
);

-- JSON files and lines that could not be read; the rest of the file is served.
CREATE TABLE bad_record (
    file VARCHAR NOT NULL,
    reason VARCHAR NOT NULL,
    found DOUBLE NOT NULL
);

-- Plan files as they were when they were read: inode, size and time of change.
CREATE TABLE plan_file (
    source VARCHAR NOT NULL,        -- 'grids/<name>' or 'submissions/<id>'
    signature VARCHAR NOT NULL
);

-- Two-sided 95 % quantiles of Student's t; a sample between two rows takes the larger quantile.
CREATE TABLE t_quantile (
    df INTEGER NOT NULL,            -- degrees of freedom
    q DOUBLE NOT NULL               -- the quantile
);
INSERT INTO t_quantile VALUES
    (1, 12.706205), (2, 4.302653), (3, 3.182446), (4, 2.776445), (5, 2.570582), (6, 2.446912),
    (7, 2.364624), (8, 2.306004), (9, 2.262157), (10, 2.228139), (11, 2.200985), (12, 2.178813),
    (13, 2.160369), (14, 2.144787), (15, 2.131450), (16, 2.119905), (17, 2.109816), (18, 2.100922),
    (19, 2.093024), (20, 2.085963), (21, 2.079614), (22, 2.073873), (23, 2.068658), (24, 2.063899),
    (25, 2.059539), (26, 2.055529), (27, 2.051831), (28, 2.048407), (29, 2.045230), (30, 2.042272),
    (40, 2.021075), (50, 2.008559), (60, 2.000298), (80, 1.990063), (100, 1.983972), (120, 1.979930),
    (200, 1.971896), (500, 1.964720), (1000, 1.962339), (1000000, 1.959966);

-- What the papers published ----------------------------------------------------------------------------------------

-- Cell of a table of the papers, from data of this package. Nothing of it is measured here.
CREATE TABLE published (
    id INTEGER NOT NULL,            -- from 0, table by table, row by row
    paper VARCHAR NOT NULL,         -- 000 to 004
    paper_table VARCHAR NOT NULL,   -- T1; T5-left and T5-right are the halves of one
    row_label VARCHAR NOT NULL,     -- as printed; heads of several levels are joined by ' · '
    column_label VARCHAR NOT NULL,  -- as printed
    printed VARCHAR NOT NULL,       -- the text of the cell; * marks proxy scores
    value DOUBLE,                   -- null where the paper prints a dash; `mark` says why
    unit VARCHAR NOT NULL,          -- unit of value, uncertainty and binomial_se
    better VARCHAR,                 -- lower or higher; null where neither is
    scale VARCHAR NOT NULL,         -- how cells are compared: log by ratios, linear by differences
    uncertainty DOUBLE,             -- as printed; null where none is
    uncertainty_is VARCHAR,         -- what that is: se over items
    n_seeds INTEGER,                -- null: the paper does not say
    items BIGINT,                   -- in the usual test set of that name; null where no number is known
    binomial_se DOUBLE,             -- sqrt(p (1 - p) / (n - 1)) of those items; the paper does not print it
    metric VARCHAR NOT NULL,        -- what the paper measured
    measurement VARCHAR,            -- the name of the evaluation, metric or probe that is the same here; null: none is
    point MAP(VARCHAR, DOUBLE) NOT NULL,        -- where it is measured, as far as the paper says
    factor DOUBLE NOT NULL,         -- value times factor is in the unit of the measurement
    operator VARCHAR,               -- as `ablate operators` lists it; null: none of these
    arguments MAP(VARCHAR, VARCHAR) NOT NULL,   -- arguments of the operator, if the paper gives them
    baseline BOOLEAN NOT NULL,      -- what the table compares others with, in the same model, setup and metric
    placement VARCHAR,              -- layers that have the operator, where the paper says
    model VARCHAR NOT NULL,         -- as the paper calls it
    parameters DOUBLE,              -- parameters of the model
    data VARCHAR,                   -- it was trained on
    tokens DOUBLE,                  -- tokens of these data, as the paper says
    steps BIGINT,                   -- steps of training
    task VARCHAR,                   -- the kind of task here that is nearest to what it was trained for
    setup MAP(VARCHAR, VARCHAR) NOT NULL,       -- what else tells rows apart
    caption VARCHAR NOT NULL,       -- what the table is about, in short
    mark VARCHAR,                   -- what the paper says of this cell: why a dash, what a star, quoted from whom
    notes INTEGER[] NOT NULL,       -- rows of published_note that concern the cell
    trust VARCHAR,                  -- their words; null: nothing is known against it
    unusable BOOLEAN NOT NULL       -- one of them forbids to compare with it
);

-- Inconsistency within a paper.
CREATE TABLE published_note (
    note INTEGER NOT NULL,          -- from 1
    paper VARCHAR NOT NULL,         -- 000 to 004
    place VARCHAR NOT NULL,         -- where in the paper
    text VARCHAR NOT NULL,          -- what does not agree
    unusable BOOLEAN NOT NULL,      -- nothing can be compared with the cells that it concerns
    cells BIGINT NOT NULL           -- that it concerns; 0 where it is about a figure
);

-- Operator that a published table names, with its arguments: what the spec of such an operator holds.
CREATE TABLE published_operator (
    operator VARCHAR NOT NULL,      -- as `ablate operators` lists it
    arguments MAP(VARCHAR, VARCHAR) NOT NULL,   -- arguments of the operator, if the paper gives them
    kinds MAP(VARCHAR, VARCHAR) NOT NULL,       -- JSON path -> JSON text: which operator it is
    numbers MAP(VARCHAR, VARCHAR) NOT NULL      -- JSON path -> JSON text: that it has these arguments; a vector's `norm`
                                                -- is the length of its `init` in all channels of a head
);

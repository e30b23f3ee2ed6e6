"""The papers' training recipes: optimiser, schedule, length and precision, each a function that returns a `Training`.

A recipe has no data and no model; its docstring gives the paper's batch and context. The models are in
`ablate.variants.model.named_backbones`. A batch in tokens is `task.batch` times the task's length. If a paper leaves
something out, the docstring says what is used instead.

    Trial(training=sink_60m(), ...)                      the paper's
    Trial(training=scaled(sink_60m(), 2000), ...)        a tenth as long, with a tenth of the warm-up
    Trial(training=sink_60m().changed(clip=None), ...)   with another field

Paper 001 trains nothing. Matrices and embeddings decay, and biases, norms and operators' numbers do not, also where
released code decays all of them.
"""

from ablate.training.optimisers import AdamW, Training, UncorrectedAdamW
from ablate.training.optimisers.schedules import WSD, Constant, Cosine, Linear


def scaled(training: Training, steps: int) -> Training:
    """Return `training` over `steps` steps, longer or shorter.

    Warm-up and `evaluate_every` keep their share of the run, rounded to at least one step if there were any. The
    warm-up ends before the decay. Rates and shares of a schedule (decay, floor) do not change.

    SpecError if `steps` is no positive whole number, or leaves no step of warm-up before the decay.
    """
    longer = training.changed(steps=steps, schedule=Constant())  # refuses a bad number before it is used

    def share(count: int) -> int:
        return max(1, round(count * steps / training.steps)) if count else 0

    schedule, every = training.schedule, training.evaluate_every
    warmup = min(share(schedule.warmup), max(1, schedule.longest_warmup(steps)))
    return longer.changed(
        schedule=schedule.changed(warmup=warmup), evaluate_every=None if every is None else share(every)
    )


def affine_scaled() -> Training:
    """Paper 000, section 5.1 and appendix B.1: all of its students, by distillation.

    1024 sequences of 2048 tokens, 9000 steps: 18.9 B tokens, which the paper calls 20 B. The rate was chosen from 5e-4
    to 5e-3. Not said: optimiser and betas (here AdamW with 0.9, 0.95), clipping (1), the share of the decay (a fifth),
    its shape (a line), its floor (0), precision (bfloat16).
    """
    return Training(
        steps=9000,
        optimiser=AdamW(lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1),
        schedule=WSD(warmup=100, decay=0.2, floor=0.0),
        clip=1.0,
        precision="bfloat16",
    )


def integral_125m() -> Training:
    """Paper 002, section 4 and appendix A.3: the models of 125 M parameters, on 28 B tokens.

    16 sequences on each of 8 GPUs, 8 micro-batches: 1024 sequences of 2048 tokens, 2.1 M tokens a step. That makes 13
    351 steps, of which 10 000 are warm-up. Not said: shape of the decay, betas, weight decay and clipping. The paper
    uses the Transformers library, so these are its Trainer's: a line to 0, (0.9, 0.999), none, 1. The kind of mixed
    precision is not said.
    """
    return Training(
        steps=13_351,
        optimiser=AdamW(lr=3e-4, betas=(0.9, 0.999)),
        schedule=Linear(warmup=10_000, floor=0.0),
        clip=1.0,
        precision="bfloat16",
    )


def integral_1200m() -> Training:
    """Paper 002, appendix A.3: the models of 1.2 B parameters, on 128 B tokens.

    4 sequences on each of 8 GPUs, 32 micro-batches: 1024 sequences of 2048 tokens, hence 61 035 steps. All else as in
    `integral_125m`.
    """
    return integral_125m().changed(steps=61_035)


def scaled_signed_averaging_in_context() -> Training:
    """Paper 003, appendix A.1: linear functions and quantifiers in context, tables 1, 5 and 6.

    64 sequences of 40 points at most, fresh at every step; the curriculum is the task's. The paper says 500 000 steps,
    the released code takes 500 001. Plain Adam at a constant rate; betas are not said (PyTorch's).
    """
    return Training(steps=500_000, optimiser=AdamW(lr=1e-4))


def nanogpt() -> Training:
    """nanoGPT's training of GPT-2 small, which papers that name no schedule of their own start from.

    480 sequences of 1024 tokens, 0.49 M tokens a step, about 300 B tokens. Its first steps have the rate 0 or 1 / 2001
    of the peak, by version; here 1 / 2000.
    """
    return Training(
        steps=600_000,
        optimiser=AdamW(lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1),
        schedule=Cosine(warmup=2000, floor=0.1),
        clip=1.0,
        precision="bfloat16",
    )


def scaled_signed_averaging_gpt2() -> Training:
    """Paper 003, appendix A.2: GPT-2 small on web text, tables 2 and 4.

    50 000 steps from 6e-4 to 6e-5. 12 sequences of 1024 tokens in a micro-batch on 12 GPUs, accumulated. A step of
    16 micro-batches, 192 sequences, gives 9.8 B tokens of "approximately 10 B". Not said: the warm-up (nanoGPT's 2000),
    clipping (nanoGPT's 1) and the kind of mixed precision.
    A later version of the paper trains another model, for 22 000 steps of 768 sequences of 1024 tokens.
    """
    return nanogpt().changed(steps=50_000)


def babyberta() -> Training:
    """Paper 003, table 3, by the code of BabyBERTa, which its encoders are trained with.

    16 sentences of at most 128 tokens a step. Adam without bias correction, clipping at 1, a line to 0 that ends with
    the data: how many steps that is depends on the corpus, and is not said. BabyBERTa was judged after 260 000, which
    is taken as the length here.
    """
    return Training(
        steps=260_000,
        optimiser=UncorrectedAdamW(lr=1e-4, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0),
        schedule=Linear(warmup=24_000, floor=0.0),
        clip=1.0,
    )


def sink_60m() -> Training:
    """Paper 004, section 4: the models of 60 M parameters, tables 1 to 14.

    512 sequences of 2048 tokens, 1.05 M tokens a step, 21 B tokens out of 5 B. The paper says "cosine"; its released
    configurations end at the rate they peak at, so the rate is constant after the warm-up. Betas (0.9, 0.95) and
    clipping (1) are those of the released code, which computes in bfloat16 where the GPU can.
    """
    return Training(
        steps=20_000,
        optimiser=AdamW(lr=4e-4, betas=(0.9, 0.95), weight_decay=0.1),
        schedule=Constant(warmup=100),
        clip=1.0,
        precision="bfloat16",
    )


def sink_1b() -> Training:
    """Paper 004, section 7: the models of 1 B parameters; `sink_60m` for 40 000 steps (the released configuration)."""
    return sink_60m().changed(steps=40_000)

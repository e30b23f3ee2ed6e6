"""Writes docs/probes.md and its pictures from the code; `python -m runners.catalogue.probes_page`."""

from pathlib import Path

from runners.catalogue import hand_set
from runners.catalogue.choice_page import contents, part_sections, section
from runners.catalogue.choice_words import FIELD_HEADINGS, field_rows
from runners.catalogue.explain_choice import explain_choice, find_choice, is_ours, kinds
from runners.catalogue.markdown import table, write_files
from runners.catalogue.probe_drawings import heads_picture, probe_picture
from runners.output import write
from runners.probes import Probe, Probing

INTRO = """# Probes

Generated from the code by `python -m runners.catalogue.probes_page`; edit the docstrings, not this page. In a
terminal, `ablate probes NAME` says the same.

A probe looks inside a model at every evaluation: at the end of training, and where `training.evaluate_every=N` is set
every N steps before it, never before the first. By default there is one look. It sees a few fixed sequences of the
task, the same for all models and seeds, and changes no number of the training. What it finds are rows (trial, attempt,
step, name, layer, head, point, value) of the table `probe`, or files of arrays in the attempt's folder `artefacts/`:

```python
Trial(probing=Probing(probes=(SinkShare(eps=(0.2, 0.3)), EffectiveRank())), ...)
```

A trial without `probing` has the default probes. Layers are computed once for all probes, by the definition, whatever
path trains; `ablate` records how long probes took (`probe_s`). Layers and heads count from 0, positions of keys from 1.

A trial that diverges is not evaluated; rows of its evaluations before stay. At the step of its divergence
{last} record what needs no pass through the model. All are rows of a failed attempt,
in table `probe` and view `v_probe`.

{probing}
## The four heads

Every picture shows what the probe itself finds in the same four heads, so that one sees what its number means:

![Attention maps and logits of four heads: uniform, sink, identity, alternating](probes/heads.svg)

```text
{heads}
```

Probes that look at something else are shown that: gates, numbers, norms. In a picture, bars of one unit have one scale.
"""


def page() -> dict[str, str]:
    """Every file of the documentation of probes, by its path below docs/."""
    names = [row.name for row in kinds("probe") if is_ours(find_choice(row.name, row.of)[1])]
    found = [explain_choice(name, "probe") for name in names]
    heads = (hand_set.__doc__ or "").partition("\n\n")[2].strip("\n")
    probing = table(FIELD_HEADINGS, [(f"`{each.name}`", *each[1:]) for each in field_rows(Probing)])
    parts = [
        INTRO.format(heads=heads, probing=probing, last=_at_divergence(names)),
        *contents(found),
        "## Each probe\n",
    ]
    parts += [section(each, "probes") for each in found]
    parts += part_sections(found)
    pictures = {f"probes/{name}.svg": probe_picture(name) for name in names}
    return {"probes.md": "\n".join(parts), "probes/heads.svg": heads_picture(), **pictures}


def _at_divergence(names: list[str]) -> str:
    return " and ".join(f"`{name}`" for name in names if Probe.members()[name].at_divergence)


def write_page(docs: Path) -> int:
    """Write every file below `docs` and remove pictures of probes that are gone; how many files there are."""
    return write_files(docs, "probes", page())


if __name__ == "__main__":
    write(f"docs/probes.md and its pictures: {write_page(Path('docs'))} files")

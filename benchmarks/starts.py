"""Counting of a training run's sentences: µs a step, at the first start and at a later one.

    python -m benchmarks.starts [--share 0.002] [--recipe forkme]

The episodes are those of the dry runs in recipe headers (`recipe_costs`), with elements and without pixels. The first
start counts every sentence and keeps the lengths beside the shards; the second one reads them. Times are those of one
process, in CPU seconds. The last line of output is JSON.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from helpers.published import recipe_costs

from vlm_agent.recipe.run import read_recipe
from vlm_agent.training.data import lengths
from vlm_agent.training.data.shard_data import ShardDataModule


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=0.002, help="share of AITW's episodes (default 0.002)")
    parser.add_argument("--recipe", default="forkme", help="a recipe of recipe_costs (default forkme)")
    options = parser.parse_args()
    lengths._LEAST_STEPS = 1
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        shards = recipe_costs.write_html(folder / "shards", options.share)
        path = recipe_costs.RECIPES / f"{options.recipe}.yaml"
        recipe = read_recipe(path)
        overrides = recipe_costs.stand_ins(recipe, folder) | {"data.shards": str(shards)}
        recipe = read_recipe(path, overrides | {"data.mixture": "{}", "training.validation": "null"})
        times = [counting_time(recipe) for _ in range(2)]
    steps = times[0][1]
    first, again = (round(seconds / steps * 1e6) for seconds, _ in times)
    print(json.dumps({"recipe": options.recipe, "steps": steps, "first_us_a_step": first, "again_us_a_step": again}))


def counting_time(recipe) -> tuple[float, int]:
    """CPU seconds of counting, and the number of steps."""
    data = ShardDataModule(recipe)
    kind = data.kind
    kind.run.tokenizer  # noqa: B018 (loaded before the clock starts)
    start = time.process_time()
    steps = len(kind.counts.steps)
    return time.process_time() - start, steps


if __name__ == "__main__":
    main()

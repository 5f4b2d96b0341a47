"""The texts of Chain-of-Action-Thought (CoAT) and the plans of D-PoT (`plans.py`) in sentences: what is read, what is
learned, and what an answer has.

    read      SD, the description of the current screen          `data.coat.screen`
              AR, the result of the previous action              `data.coat.result`
    learned   AT, the thought that leads to the action           `data.coat.think`
              AD, the description of the action                  `data.coat.action`

AT and AD are written before the action that they belong to. With every part off, a sentence is the same as without this
package. AR of the current step and SD of the next one describe what follows the action, so no input contains them.
"""

from vlm_agent.sentences.thoughts.headed import HeadedThoughts
from vlm_agent.sentences.thoughts.lines import AnswerLines, LineThoughts
from vlm_agent.sentences.thoughts.plans import PlanLines
from vlm_agent.sentences.thoughts.recorded import known_texts, texts_at
from vlm_agent.sentences.thoughts.shuffled import (
    controlled_texts,
    shuffled_results,
    with_shuffled_results,
    with_shuffled_texts,
)

__all__ = [
    "AnswerLines",
    "HeadedThoughts",
    "LineThoughts",
    "PlanLines",
    "controlled_texts",
    "known_texts",
    "shuffled_results",
    "texts_at",
    "with_shuffled_results",
    "with_shuffled_texts",
]

"""D-PoT's rule for clicks in the paper's words; `test_dialects.py` compares the published code's."""

import numpy as np

from vlm_agent.evaluation.scoring.d_pot import touches_the_element


def test_an_element_is_touched_near_its_centre_and_its_corners():
    box = np.array([[0.2, 0.1, 0.6, 0.8]])
    gold = np.array([(0.5, 0.5), (0.2 - 0.13, 0.9), (0.8 + 0.13, 0.1), (0.8, 0.9 + 0.09), (0.2 - 0.15, 0.5)])
    predicted, screen = np.full((len(gold), 2), 0.5), np.arange(len(gold))
    found = touches_the_element(gold, predicted, np.repeat(box, len(gold), axis=0), screen)
    assert found.tolist() == [True, True, True, True, False]

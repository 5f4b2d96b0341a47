"""Overlap and suppression of boxes."""

import numpy as np

from vlm_agent.screens.widgets.boxes import fraction_box, overlap, suppressed


def test_overlap_is_intersection_over_union_and_0_for_empty_boxes():
    first = np.array([[0, 0, 2, 2], [1, 1, 1, 1]])
    second = np.array([[0, 1, 2, 3], [0, 0, 2, 2], [5, 5, 6, 6]])
    np.testing.assert_allclose(overlap(first, second), [[1 / 3, 1, 0], [0, 0, 0]])


def test_overlap_of_a_flat_box_in_a_large_one_is_its_share_in_both_orders():
    large, flat = np.array([[0, 0, 5, 8]]), np.array([[1, 2, 2, 6]])
    upright = flat[:, [1, 0, 3, 2]]
    assert overlap(large, flat).item() == overlap(flat, large).item() == 0.1
    assert overlap(large, upright).item() == overlap(upright, large).item() == 3 / 41


def test_suppression_keeps_the_best_of_each_kind():
    boxes = np.array([[0, 0, 10, 10], [0, 1, 10, 11], [0, 1, 10, 11], [20, 20, 30, 30]], float)
    kept = suppressed(boxes, np.array([0.5, 0.9, 0.4, 0.6]), np.array([0, 0, 1, 0]), 0.5)
    assert kept.tolist() == [1, 3, 2]
    scores, kinds = np.array([0.5, 0.9, 0.4, 0.6]), np.array([0, 0, 1, 0])
    assert suppressed(boxes, scores, kinds, 0.5, 0.9).tolist() == [1, 3]  # the same box as another kind
    assert suppressed(np.zeros((0, 4)), np.zeros(0), np.zeros(0, int), 0.5).tolist() == []


def test_boxes_are_cut_at_the_edges_of_the_picture():
    assert fraction_box((-5, 10, 50, 300), 100, 200) == (0.0, 0.05, 0.5, 0.95)
    assert fraction_box((120, 10, 150, 300), 100, 200)[2] == 0

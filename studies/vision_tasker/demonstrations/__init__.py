"""What studies/vision_tasker/demonstrations measures: tasks that failed, again with a demonstration."""

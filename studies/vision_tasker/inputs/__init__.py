"""The inputs and figures of studies/vision_tasker/inputs."""

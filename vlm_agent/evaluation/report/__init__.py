"""The report: one self-contained page with tables, curves, published numbers and screens with wrong predictions."""

from vlm_agent.evaluation.report.page import Earlier, write_report

__all__ = ["Earlier", "write_report"]

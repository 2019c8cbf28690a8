"""The data doctor: reads every corpus of a configuration once and says what is wrong with it, where, and how badly."""

from seqloom.data.doctor.examination import examine
from seqloom.data.doctor.report import Forecast, Report

__all__ = ["Forecast", "Report", "examine"]

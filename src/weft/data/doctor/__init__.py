"""The data doctor: reads every corpus of a configuration once and says what is wrong with it, where, and how badly."""

from weft.data.doctor.examination import examine
from weft.data.doctor.report import Forecast, Report

__all__ = ["Forecast", "Report", "examine"]

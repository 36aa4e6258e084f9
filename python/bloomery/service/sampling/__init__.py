"""Figures of every filter over time: samples, the observed error rate, and their retention."""

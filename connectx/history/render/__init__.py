"""Renders a history: timeline, SVG, charts, tables and the HTML report."""

"""Panels and dashboards: the look that all of ours share."""

from __future__ import annotations

from string import ascii_uppercase

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models import common as looks
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
    VariableRefresh,
)
from grafana_foundation_sdk.models.dashboard import Panel as PanelModel

Panel = Builder[PanelModel]
Page = dashboard.Dashboard
Query = tuple[str, str]
"""A legend, with labels in double braces, and an expression of PromQL."""

PROMETHEUS = DataSourceRef(type_val="prometheus", uid="${datasource}")

_EVERY_MODEL = "nv_inference_request_success"
_GRAPH_WIDTH, _GRAPH_HEIGHT = 8, 8
_STAT_WIDTH, _STAT_HEIGHT = 4, 4
TRACES = (
    "${jaeger:raw}/search?service=triton-inference-server&lookback=1h&limit=20"
    "&tags=%7B%22triton.model_name%22%3A%22${__field.labels.model}%22%7D"
)
"""Jaeger's search for a series' model, as spans name it (T-12, T-14)."""


def graph(
    title: str,
    unit: str,
    *queries: Query,
    about: str = "",
    maximum: float | None = None,
    stacked: bool = False,
    traces: bool = False,
) -> Panel:
    """A graph over time, from zero; `traces` links each series to its model's traces in Jaeger."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(about)
        .unit(unit)
        .min(0)
        .datasource(PROMETHEUS)
        .height(_GRAPH_HEIGHT)
        .span(_GRAPH_WIDTH)
        .fill_opacity(25 if stacked else 8)
        .show_points(looks.VisibilityMode.NEVER)
        .tooltip(common.VizTooltipOptions().mode(looks.TooltipDisplayMode.MULTI))
        .targets(_targets(queries, exemplars=traces))
    )
    if maximum is not None:
        panel = panel.max(maximum)
    if stacked:
        panel = panel.stacking(common.StackingConfig().mode(looks.StackingMode.NORMAL))
    if traces:
        link = dashboard.DashboardLink("Traces of this model").url(TRACES).target_blank(True)
        panel = panel.data_links([link])
    return panel


def number(title: str, unit: str, expression: str, about: str = "") -> Panel:
    """One number: the latest value."""
    return (
        stat.Panel()
        .title(title)
        .description(about)
        .unit(unit)
        .datasource(PROMETHEUS)
        .height(_STAT_HEIGHT)
        .span(_STAT_WIDTH)
        .graph_mode(looks.BigValueGraphMode.AREA)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .targets(_targets([("", expression)]))
    )


def _targets(
    queries: list[Query] | tuple[Query, ...], *, exemplars: bool = False
) -> list[Builder[Dataquery]]:
    return [
        prometheus.Dataquery()
        .ref_id(letter)
        .expr(expression)
        .legend_format(legend)
        .range()
        .exemplar(exemplars)
        for letter, (legend, expression) in zip(ascii_uppercase, queries, strict=False)
    ]


def page(
    uid: str,
    title: str,
    about: str,
    rows: dict[str, list[Panel]],
    *,
    models: str = _EVERY_MODEL,
) -> Page:
    """A dashboard of rows of panels; `models` is the metric whose models it is about."""
    board = (
        dashboard.Dashboard(title)
        .uid(uid)
        .description(about)
        .tags(["penstock", "triton"])
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .refresh("10s")
        .time("now-15m", "now")
        .with_variable(
            dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
        )
        .with_variable(_label_variable("instance", "Server", _EVERY_MODEL))
        .with_variable(_label_variable("model", "Model", models))
        .with_variable(dashboard.ConstantVariable("jaeger").value("http://localhost:16686"))
        .link(
            dashboard.DashboardLink("Dashboards")
            .type(DashboardLinkType.DASHBOARDS)
            .tags(["penstock"])
            .include_vars(True)
            .keep_time(True)
        )
        .link(
            dashboard.DashboardLink("Traces")
            .type(DashboardLinkType.LINK)
            .url("${jaeger:raw}/search?service=triton-inference-server&lookback=1h")
            .target_blank(True)
        )
    )
    ids = iter(range(1, 1000))
    for name, panels in rows.items():
        board = board.with_row(dashboard.Row(name).id(next(ids)))
        for panel in panels:
            board = board.with_panel(_numbered(panel, next(ids)))
    return board


def _label_variable(name: str, label: str, metric: str) -> dashboard.QueryVariable:
    variable = (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(PROMETHEUS)
        .query(f"label_values({metric}, {name})")
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .multi(True)
        .include_all(True)
    )
    # Else all are those that the metric lists.
    return variable.all_value(".*") if metric == _EVERY_MODEL else variable


def _numbered(panel: Panel, number: int) -> Panel:
    assert isinstance(panel, timeseries.Panel | stat.Panel)
    return panel.id(number)

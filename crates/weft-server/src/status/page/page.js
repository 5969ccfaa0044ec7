"use strict";

// Seconds over which rates and latencies are computed.
const WINDOW = 10;
// Seconds shown by a chart: maximum, and minimum width of its time axis.
const MAX_HISTORY = 180;
const MIN_HISTORY = 60;
// Maximum numbers of routes and of certificates shown.
const MAX_ROUTES = 50;
const MAX_CERTIFICATES = 50;

const $ = (id) => document.getElementById(id);

// -- events

// The latest snapshots, one for each second of the window.
let recent = [];
// Data points of the charts.
const points = [];

function connect() {
  const events = new EventSource("events");
  events.onmessage = ({ data }) => {
    showConnection("live");
    show(JSON.parse(data));
  };
  events.onerror = () => {
    showConnection("lost");
    // Browsers reconnect on their own, unless the event source is closed.
    if (events.readyState === EventSource.CLOSED) setTimeout(connect, 2000);
  };
}

function showConnection(state) {
  const labels = { live: "live", lost: "not reachable, trying again" };
  document.body.className = state;
  setText($("live"), labels[state]);
}

function show(now) {
  // The counters of a new process start at zero.
  if (recent.length && recent[0].started !== now.started) recent = [];
  const previous = recent.at(-1) ?? now;
  recent.push(now);
  if (recent.length > WINDOW + 1) recent.shift();
  const then = recent[0];

  const overall = latency(sumOf(now.routes, then.routes), now.bucket_bounds);
  const rate = perSecond(then, now, requests);
  const errors = perSecond(then, now, serverErrors);
  const open = sum(now.workers, (worker) => worker.open_connections);
  points.push({
    rate: perSecond(previous, now, requests),
    errors: perSecond(previous, now, serverErrors),
    open,
    ...overall,
  });
  if (points.length > MAX_HISTORY) points.shift();

  setText($("rate"), showRate(rate));
  setText($("p50"), showTime(overall.p50));
  setText($("p99"), showTime(overall.p99));
  setText($("open"), showCount(open));
  setText($("errors"), showRate(errors));
  $("errors").closest("article").classList.toggle("bad", points.some((it) => it.errors > 0));
  draw($("rate-line"), ["rate"]);
  draw($("latency-line"), ["p99", "p50"]);
  draw($("open-line"), ["open"]);
  draw($("errors-line"), ["errors"]);
  document.title = `${showRate(rate)}/s · weft`;

  showProgram(now);
  showUpstreams(now, then);
  showStreams(now, then);
  showRoutes(now, then);
  showCache(now);
  showCertificates(now);
  showWorkers(now, then);
}

// -- computed values

const sum = (list, number) => list.reduce((total, it) => total + number(it), 0);
const responses = (worker) => sum(Object.values(worker.responses), (count) => count);
const requests = (snapshot) => sum(snapshot.workers, responses);
const serverErrors = (snapshot) => sum(snapshot.workers, (worker) => worker.responses["5xx"]);

// Growth of a counter per second. A counter that decreased was reset.
function perSecond(then, now, number) {
  const seconds = now.time - then.time;
  return seconds > 0 ? Math.max(0, number(now) - number(then)) / seconds : 0;
}

// Growth per second of an entry of a list; 0 if `before`, its earlier value, is missing.
function growth(then, now, before, count) {
  const seconds = now.time - then.time;
  return before && seconds > 0 ? Math.max(0, count) / seconds : 0;
}

const routeKey = (it) => `${it.host} ${it.prefix}`;
const upstreamKey = (it) => `${routeKey(it)} ${it.upstream}`;

function byKey(list, key) {
  return new Map(list.map((it) => [key(it), it]));
}

// Counts added to the buckets of a histogram since `before`.
function newIn(after, before) {
  const zeros = before?.durations.buckets ?? after.durations.buckets;
  return after.durations.buckets.map((count, i) => Math.max(0, count - zeros[i]));
}

function sumOf(after, before) {
  const known = byKey(before, routeKey);
  const each = after.map((route) => newIn(route, known.get(routeKey(route))));
  return each.reduce((total, buckets) => total.map((count, i) => count + buckets[i]));
}

// Median and 99th percentile, interpolated between the bounds of the buckets.
function latency(buckets, bounds) {
  const total = sum(buckets, (count) => count);
  const quantile = (share) => {
    if (total === 0) return null;
    let remaining = share * total;
    for (let i = 0; i < bounds.length; i++) {
      const low = i === 0 ? 0 : bounds[i - 1];
      if (buckets[i] > 0 && remaining <= buckets[i]) {
        return low + (bounds[i] - low) * (remaining / buckets[i]);
      }
      remaining -= buckets[i];
    }
    return bounds.at(-1);
  };
  return { p50: quantile(0.5), p99: quantile(0.99) };
}

// -- formatting

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

const showCount = (count) => whole.format(count);
const showRate = (rate) => (rate < 10 ? tenths : whole).format(rate);

function showTime(seconds) {
  if (seconds === null) return "–";
  if (seconds < 0.001) return `${whole.format(seconds * 1e6)} µs`;
  if (seconds < 1) return `${(seconds < 0.01 ? tenths : whole).format(seconds * 1e3)} ms`;
  return `${tenths.format(seconds)} s`;
}

function showAge(seconds) {
  for (const [unit, size] of [["day", 86400], ["hour", 3600], ["minute", 60]]) {
    const count = Math.floor(seconds / size);
    if (count > 0) return `${count} ${unit}${count === 1 ? "" : "s"}`;
  }
  return "less than a minute";
}

const showBytes = (bytes) => `${tenths.format(bytes / 2 ** 20)} MiB`;

// -- tables

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Updates a table to show these rows. A cell has a text and optionally a class and a title.
// Unchanged cells are not touched, so that a text selection is kept.
function fill(table, rows) {
  while (table.rows.length > rows.length) table.deleteRow(-1);
  rows.forEach((cells, at) => {
    const row = table.rows[at] ?? table.insertRow();
    cells.forEach((cell, i) => {
      const element = row.cells[i] ?? row.insertCell();
      const { text, name = "", title = "" } = cell;
      if (element.className !== name) element.className = name;
      if (element.title !== title) element.title = title;
      setText(element, text);
    });
  });
}

const name = (text) => ({ text, title: text });
const number = (text, count) => ({ text, name: count ? "" : "zero" });
const count = (n) => number(showCount(n), n);
const alarm = (n) => ({ text: showCount(n), name: n ? "alarm" : "zero" });
const rateCell = (rate) => number(showRate(rate), rate);
const timeCell = (seconds) => number(showTime(seconds), seconds);

function showProgram(now) {
  const { process, configuration } = now;
  const parts = [
    `version ${now.version}`,
    `up for ${showAge(now.time - now.started)}`,
    `configuration loaded ${showAge(now.time - configuration.loaded)} ago`,
  ];
  setText($("summary"), parts.join(" · "));
  $("reload").hidden = !configuration.has_last_reload_failed;
  const of = process.max_descriptors === null ? "" : ` of ${showCount(process.max_descriptors)}`;
  const facts = [
    process.resident_bytes !== null && `${showBytes(process.resident_bytes)} of memory`,
    process.open_descriptors !== null && `${showCount(process.open_descriptors)}${of} descriptors`,
    `${tenths.format(process.cpu_seconds)} s of CPU time`,
    `reloaded ${showCount(configuration.reloads)} times`,
  ];
  setText($("process"), facts.filter(Boolean).join(" · "));
}

function showUpstreams(now, then) {
  const known = byKey(then.upstreams, upstreamKey);
  const rows = now.upstreams.map((it) => {
    const before = known.get(upstreamKey(it));
    const { p50, p99 } = latency(newIn(it, before), now.bucket_bounds);
    const rate = growth(then, now, before, it.requests - before?.requests);
    return [
      // Without scheme and trailing slash, to fit on narrow screens.
      { text: it.upstream.replace(/^http:\/\/(.*)\/$/, "$1"), title: `${it.upstream} for ${showRoute(it)}` },
      { text: it.is_mirror ? `mirror, ${it.state}` : it.state, name: `health ${it.state}` },
      number(showCount(it.weight), it.weight !== 1),
      rateCell(rate),
      timeCell(p50),
      timeCell(p99),
      count(it.connections_in_use),
      count(it.connections_idle),
      count(it.queued),
      count(it.retries),
      alarm(it.failures),
    ];
  });
  $("upstreams-section").hidden = rows.length === 0;
  fill($("upstreams"), rows);
}

// Each upstream of each stream, with the numbers per second of its connections and bytes.
function showStreams(now, then) {
  const targets = (snapshot) => snapshot.streams.flatMap(({ stream, upstreams }) =>
    upstreams.map((target) => ({ stream, ...target })));
  const key = (it) => `${it.stream} ${it.server_name} ${it.upstream}`;
  const known = byKey(targets(then), key);
  const rows = targets(now).map((it) => {
    const before = known.get(key(it));
    const rate = (field) => growth(then, now, before, it[field] - before?.[field]);
    const bytes = (field) => number(`${showBytes(rate(field))}/s`, rate(field));
    return [
      name(it.server_name ? `${it.stream} · ${it.server_name}` : it.stream),
      name(it.upstream),
      { text: it.state, name: `health ${it.state}` },
      rateCell(rate("connections")),
      count(it.open),
      bytes("bytes_received"),
      bytes("bytes_sent"),
      alarm(it.failures),
    ];
  });
  $("streams-section").hidden = rows.length === 0;
  fill($("streams"), rows);
}

function showRoute({ host, prefix }) {
  if (host === "" && prefix === "none") return "no route";
  return host === "*" ? prefix : `${prefix} · ${host}`;
}

function showRoutes(now, then) {
  const known = byKey(then.routes, routeKey);
  const total = ({ durations }) => durations.count;
  const isRoute = (it) => it.prefix !== "none" || total(it) > 0;
  const routes = now.routes.filter(isRoute).sort((a, b) => total(b) - total(a));
  const rows = routes.slice(0, MAX_ROUTES).map((it) => {
    const before = known.get(routeKey(it));
    const { p50, p99 } = latency(newIn(it, before), now.bucket_bounds);
    return [
      name(showRoute(it)),
      rateCell(growth(then, now, before, total(it) - (before ? total(before) : 0))),
      timeCell(p50),
      timeCell(p99),
      count(it.in_flight),
      count(it.requests["2xx"] + it.requests["1xx"]),
      count(it.requests["3xx"]),
      count(it.requests["4xx"]),
      alarm(it.requests["5xx"]),
      count(it.requests["none"]),
    ];
  });
  fill($("routes"), rows);
  const others = routes.length - rows.length;
  setText($("more-routes"), others > 0 ? `and ${showCount(others)} with fewer requests` : "");
}

function showCache(now) {
  const routes = now.routes.filter((it) => it.cache !== null).slice(0, MAX_ROUTES);
  const mebibytes = (bytes) => Math.round(bytes / (1 << 20));
  const rows = routes.map(({ host, prefix, cache }) => [
    name(showRoute({ host, prefix })),
    count(cache.hits),
    count(cache.collapsed),
    count(cache.stale),
    count(cache.revalidated),
    count(cache.misses),
    count(cache.bypassed),
    count(mebibytes(cache.bytes_sent)),
  ]);
  $("cache-section").hidden = now.cache === null;
  fill($("cache"), rows);
  if (now.cache === null) return;
  const { entries, memory_bytes, evicted, on_disk } = now.cache;
  const files = on_disk ? `; ${showCount(on_disk.responses)} on disk, ${mebibytes(on_disk.bytes)} MiB` : "";
  setText($("cache-store"), `${showCount(entries)} responses, ${mebibytes(memory_bytes)} MiB, ${showCount(evicted)} evicted${files}`);
}

// Names with failures come first, then those that expire first.
function showCertificates(now) {
  const expiry = (it) => it.expires ?? 0;
  const failed = (it) => (it.failures > 0 ? 1 : 0);
  const all = [...now.certificates];
  all.sort((a, b) => failed(b) - failed(a) || expiry(a) - expiry(b));
  const date = (time) => new Date(time * 1000).toISOString().slice(0, 16).replace("T", " ");
  const rows = all.slice(0, MAX_CERTIFICATES).map((it) => {
    const until = (time, past) => (time > now.time ? `in ${showAge(time - now.time)}` : past);
    const expires = it.expires === null
      ? { text: "none yet", name: "alarm" }
      : { text: until(it.expires, "expired"), title: date(it.expires) };
    return [
      name(it.name),
      expires,
      { text: until(it.next_order, "now"), title: date(it.next_order) },
      alarm(it.failures),
      { text: it.last_error ?? "", name: "error", title: it.last_error ?? "" },
    ];
  });
  // Files that could not be loaded after a change come before them.
  for (const { file, error } of now.certificate_failures) {
    rows.unshift([name(file), { text: "" }, { text: "" }, alarm(1), { text: error, name: "error", title: error }]);
  }
  $("certificates-section").hidden = rows.length === 0;
  fill($("certificates"), rows);
  const others = all.length - Math.min(all.length, MAX_CERTIFICATES);
  setText($("more-certificates"), others > 0 ? `and ${showCount(others)} that expire later` : "");
}

function showWorkers(now, then) {
  const known = byKey(then.workers, (worker) => worker.name);
  const rows = now.workers.map((it) => {
    const before = known.get(it.name);
    const rate = growth(then, now, before, responses(it) - (before ? responses(before) : 0));
    return [
      name(it.name),
      count(it.open_connections),
      { text: "", name: "wide" },
      rateCell(rate),
      count(it.accepted_connections),
      count(it.errors.peer),
      alarm(it.errors.application + it.errors.system),
    ];
  });
  fill($("workers"), rows);
  const max = Math.max(1, ...now.workers.map((it) => it.open_connections));
  now.workers.forEach((it, at) => {
    const cell = $("workers").rows[at].cells[2];
    const bar = cell.firstElementChild ?? cell.appendChild(document.createElement("span"));
    bar.className = "bar";
    bar.style.setProperty("--share", it.open_connections / max);
  });
}

// -- charts

const HEIGHT = 40;

function draw(svg, names) {
  const max = Math.max(...names.flatMap((it) => points.map((point) => point[it] ?? 0)));
  const scale = max > 0 ? (HEIGHT - 6) / max : 0;
  // The newest point is at the right edge, for any number of points.
  const width = Math.max(points.length, MIN_HISTORY) - 1;
  const x = (i) => width - points.length + 1 + i;
  const y = (value) => HEIGHT - 1 - value * scale;
  svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  svg.setAttribute("preserveAspectRatio", "none");
  names.forEach((it, at) => {
    let line = "";
    let area = "";
    points.forEach((point, i) => {
      if (point[it] === null) return;
      const isFirst = i === 0 || points[i - 1][it] === null;
      line += `${isFirst ? "M" : "L"}${x(i)} ${y(point[it]).toFixed(2)}`;
      if (isFirst) area += `M${x(i)} ${HEIGHT}`;
      area += `L${x(i)} ${y(point[it]).toFixed(2)}`;
      const isLast = i === points.length - 1 || points[i + 1][it] === null;
      if (isLast) area += `L${x(i)} ${HEIGHT}Z`;
    });
    const isSecond = names.length > 1 && at === 0;
    path(svg, 2 * at, isSecond ? "area second" : "area", isSecond ? "" : area);
    path(svg, 2 * at + 1, isSecond ? "second" : "", line);
  });
}

function path(svg, at, name, d) {
  const namespace = "http://www.w3.org/2000/svg";
  const element = svg.children[at] ?? svg.appendChild(document.createElementNS(namespace, "path"));
  element.setAttribute("class", name);
  element.setAttribute("d", d);
}

connect();

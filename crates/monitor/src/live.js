(function () {
  "use strict";
  if (!window.fetch || !window.URLSearchParams) { return; }
  var LEFT = 44, TOP = 8, WIDTH = 720, HEIGHT = 180, STEPS = 360, ROW = 128, ROWS = 64, CELL = 6;
  var COLOURS = { W: "#1f5fbf", R: "#58a0e8", K: "#8fbf6f", C: "#b080d0", L: "#b080d0",
    D: "#b080d0", G: "#d08030", I: "#d08030", S: "#e0c040", _: "#d4dcd4" };
  var CURVES = ["supply", "demand", "queue"];
  var SVG = "http:\u002f/www.w3.org/2000/svg";
  var kept = { when_us: [], supply: [], demand: [], queue: [] };
  var last = "3600", sleeps = false;
  function byId(name) { return document.getElementById("ek-" + name); }

  function keep(history) {
    var newest = kept.when_us.length ? kept.when_us[kept.when_us.length - 1] : 0;
    history.when_us.forEach(function (when, at) {
      if (when <= newest) { return; }
      kept.when_us.push(when);
      CURVES.forEach(function (name) { kept[name].push(history[name][at]); });
    });
    while (kept.when_us.length > 3600) {
      kept.when_us.shift();
      CURVES.forEach(function (name) { kept[name].shift(); });
    }
  }

  function steps(name, now) {
    var all = new Array(STEPS).fill(null);
    kept[name].forEach(function (value, i) {
      var at = STEPS - 1 - Math.floor(Math.max(0, now - kept.when_us[i]) / 1e7);
      if (at >= 0 && value !== null) { all[at] = Math.max(all[at] === null ? 0 : all[at], value); }
    });
    return all;
  }

  function height(value, most) {
    return HEIGHT - (HEIGHT - TOP) * Math.log(1 + value) / Math.log(1 + most);
  }

  function path(curve, most) {
    var text = "", down = false, wide = (WIDTH - LEFT) / (STEPS - 1);
    curve.forEach(function (value, at) {
      if (value === null) { down = false; return; }
      var x = (LEFT + wide * at).toFixed(1), y = height(value, most).toFixed(1);
      text += (down ? "L" : "M") + x + " " + y + (down ? "" : "h.1");
      down = true;
    });
    return text;
  }

  function mark(name, attributes, text) {
    var element = document.createElementNS(SVG, name);
    Object.keys(attributes).forEach(function (key) { element.setAttribute(key, attributes[key]); });
    if (text !== undefined) { element.textContent = text; }
    return element;
  }

  function axes(most) {
    var group = byId("axes"), value, y, minutes, x;
    group.textContent = "";
    for (value = 0; value <= most; value = value === 0 ? 1 : value * 10) {
      y = height(value, most);
      group.appendChild(mark("line", { x1: LEFT, x2: WIDTH, y1: y, y2: y }));
      group.appendChild(mark("text",
        { x: LEFT - 4, y: y + 4, "text-anchor": "end", stroke: "none" }, value));
    }
    for (minutes = 0; minutes <= 60; minutes += 10) {
      x = WIDTH - (WIDTH - LEFT) * minutes / 60;
      group.appendChild(mark("line", { x1: x, x2: x, y1: TOP, y2: HEIGHT }));
      group.appendChild(mark("text",
        { x: x, y: HEIGHT + 16, "text-anchor": "middle", stroke: "none" },
        minutes ? "-" + minutes + " min" : "now"));
    }
  }

  function plot(now) {
    var curves = CURVES.map(function (name) { return steps(name, now); });
    var most = 1;
    curves.forEach(function (curve) {
      curve.forEach(function (value) { if (value > most) { most = value; } });
    });
    axes(most);
    CURVES.forEach(function (name, at) { byId(name).setAttribute("d", path(curves[at], most)); });
  }

  function cells(letters) {
    var svg = byId("cells"), row, at, end, line;
    svg.textContent = "";
    letters = letters.slice(0, ROW * ROWS);
    for (row = 0; row * ROW < letters.length; row += 1) {
      line = letters.slice(row * ROW, (row + 1) * ROW);
      for (at = 0; at < line.length; at = end) {
        for (end = at + 1; line[end] === line[at]; end += 1) { continue; }
        svg.appendChild(mark("rect", { x: at * CELL, y: row * CELL, width: (end - at) * CELL,
          height: CELL - 1, fill: COLOURS[line[at]] || "#f2f2f2" }));
      }
    }
    svg.setAttribute("height", Math.max(1, row) * CELL);
  }

  function show(page) {
    var words = byId("words"), letters = document.querySelector("pre");
    words.textContent = "";
    page.pool_words.forEach(function (line) {
      words.appendChild(document.createElement("li")).textContent = line;
    });
    if (letters) { letters.textContent = page.scoreboard.replace(/.{64}/g, "$&\n"); }
    cells(page.scoreboard);
    keep(page.pool.history);
    plot(page.now_us);
  }

  function ask() {
    /* Nobody sees it: it asks for all that was missed once somebody does. */
    if (document.hidden) { last = "3600"; sleeps = true; return; }
    sleeps = false;
    fetch(location.pathname + "?json&pool&last=" + last,
      { cache: "no-store", credentials: "same-origin" })
      .then(function (answer) { return answer.json(); })
      .then(function (page) { show(page); last = "5"; })
      .catch(function () { last = "3600"; })
      .then(function () { setTimeout(ask, 1000); });
  }
  document.addEventListener("visibilitychange", function () { if (sleeps) { ask(); } });
  ask();
}());

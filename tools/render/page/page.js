/*
 * Draws the report of `ncclguard analyze --html` from the data that stands in the page.
 *
 * All that the evidence says is put into the page as text (textContent, canvas), never as markup. Times are
 * microseconds from the oldest call that is drawn; tools/render/page.c writes the data:
 *
 *   verdict     as verdict.json, and "text", "line"; "stalled" in microseconds, "since": when the wait for the culprits
 *               began; "calls" always
 *   hosts       [name, processes, samples, offset, scatter, applied]
 *   groups      [id, name, ranks, NCCL version, what the guard has registered with it in words, or null]
 *   signatures  [operation, count, data type, reduction, root or peer]
 *   ranks       {rank, culprit: index, waits, host: index, pid, program, life, life_age, exit, moment: when it was
 *               looked at, calls: [operation, group, group rank, seq, age, thread], members}; without a host: nobody
 *               has seen it
 *   members     [group, group rank, device, state, entered, scheduled, started, completed, p2p entered, p2p completed,
 *               async error, signature of `entered`, pending seq, pending age or -1, pending started, spans]
 *   spans       six numbers each: signature, seq, state, entered, from then until it started, until it ended
 *   mismatches  {group: index, op, seq, last_seq, count, confidence, culprits: [rank, why]}
 *   stragglers  {group: index, rank, last: it came last so often, samples: of so many collectives, wait: of the others
 *               for it, duration: of the collectives, medians, total: of all waits, confidence}
 *   durations   {group: index, op, size: of up to so many bytes, count, mean, p50, p99, max}
 *   stacks      {title, text, threads, ranks}; look_at: [rank, text]
 */
"use strict";

(function () {
  /* BOUNDS: done, begin and end were seen together, so it ran at some time between the two. */
  const POINT = 0, DONE = 1, CALLED = 2, QUEUED = 3, DEVICE = 4, BOUNDS = 5, FAILED = -1;
  const inFlight = (state) => state === CALLED || state === QUEUED || state === DEVICE;
  const SPAN = 6;
  const M = {group: 0, groupRank: 1, device: 2, state: 3, entered: 4, scheduled: 5, started: 6, completed: 7,
    p2pEntered: 8, p2pCompleted: 9, asyncError: 10, last: 11, pendingSeq: 12, pendingAge: 13, pendingStarted: 14,
    spans: 15};
  const KINDS = {
    healthy: "Healthy", missing_rank: "Missing rank", dead_rank: "Dead rank", stopped_rank: "Stopped rank",
    left_early: "A rank left early", mismatch: "Mismatch", order_deadlock: "Deadlock by order", gpu_stall: "GPU stall",
    init_missing_rank: "Missing rank at init", init_mismatch: "Mismatch at init", async_error: "Asynchronous error", cuda_error: "CUDA error",
    straggler: "Straggler", nan: "Not a number", watchdog_stuck: "Watchdog stuck", abort_stuck: "Abort stuck",
    unknown: "Unknown",
  };
  const OPS = ["AllReduce", "AllGather", "ReduceScatter", "Broadcast", "AlltoAll", "Send", "Recv"];

  let data;

  /* ---- Small things ---- */

  const byId = (id) => document.getElementById(id);

  /* An element; texts become text. */
  function make(name, attributes, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (key === "class") element.className = value;
      else if (typeof value === "function") element.addEventListener(key, value);
      else if (value !== undefined) element.setAttribute(key, value);
    }
    for (const child of children.flat())
      if (child || child === "") element.append(child);
    return element;
  }

  /* 3 significant digits, and no more than anybody reads. */
  function duration(us) {
    const size = Math.abs(us), text = (value, unit) => `${+value.toPrecision(3)} ${unit}`;
    if (size < 1000) return `${Math.round(us)} µs`;
    if (size < 1e6) return text(us / 1e3, "ms");
    if (size < 60e6) return text(us / 1e6, "s");
    if (size < 3600e6) return `${Math.floor(us / 60e6)} min ${Math.floor(us % 60e6 / 1e6)} s`;
    return `${Math.floor(us / 3600e6)} h ${Math.floor(us % 3600e6 / 60e6)} min`;
  }

  /* [0, 1, 2, 5] is "0–2, 5". */
  function ranges(numbers, most = 12) {
    const sorted = [...new Set(numbers)].sort((a, b) => a - b), parts = [];
    for (let i = 0; i < sorted.length;) {
      let end = i;
      while (end + 1 < sorted.length && sorted[end + 1] === sorted[end] + 1) end++;
      parts.push(end > i + 1 ? `${sorted[i]}–${sorted[end]}` : sorted.slice(i, end + 1).join(", "));
      i = end + 1;
    }
    return parts.length > most ? `${parts.slice(0, most).join(", ")} …` : parts.join(", ") || "none";
  }

  const plural = (count, one, many) => `${count.toLocaleString("en")} ${count === 1 ? one : many || one + "s"}`;
  const groupName = (index) => {
    const group = data.groups[index];
    return group ? group[1] || `group ${group[0]}` : "no group";
  };
  const operation = (op, seq) => op + (seq ? ` #${seq}` : "");
  const opOf = (signature) => signature >= 0 ? data.signatures[signature][0] : "operation";
  const isP2p = (op) => op === "Send" || op === "Recv";
  const rankText = (rank) => rank.rank >= 0 ? `rank ${rank.rank}` : "rank unknown";

  function signatureText(signature) {
    const [, count, dtype, redop, root] = data.signatures[signature];
    return [plural(count, "element"), dtype, redop, root >= 0 ? `root or peer ${root}` : null].filter(Boolean)
      .join(", ");
  }

  /* ---- What a rank is in ---- */

  /* {text, age, phase, group}: the oldest that is in flight, in the verdict's group if there is one. */
  function activity(rank) {
    if (rank.host === undefined) return {text: "nobody has seen it", age: -1};
    const found = [];
    for (const [op, group, , seq, age] of rank.calls)
      found.push({text: `in ${operation(op, seq)}`, age, group, phase: CALLED});
    for (const member of rank.members) {
      const seq = member[M.pendingSeq], pending = pendingSpan(member), spans = member[M.spans];
      if (member[M.pendingAge] < 0 && pending >= 0)
        found.push({text: `${opOf(spans[pending])} called, in an NCCL group that is still open`,
          age: rank.moment - spans[pending + 3], group: member[M.group], phase: CALLED});
      if (member[M.pendingAge] < 0) continue;
      const op = pending >= 0 ? opOf(spans[pending]) :
        seq && seq === member[M.entered] ? opOf(member[M.last]) : "operation";
      const phase = member[M.pendingStarted] ? DEVICE : QUEUED;
      found.push({text: `${operation(op, isP2p(op) ? 0 : seq)} ${phase === DEVICE ? "on the device" : "queued"}`,
        age: member[M.pendingAge], group: member[M.group], phase});
    }
    const inQuestion = (a) => a.group >= 0 && data.groups[a.group] && data.groups[a.group][0] === data.verdict.group;
    found.sort((a, b) => inQuestion(b) - inQuestion(a) || b.age - a.age);
    if (found.length) return found[0];
    return lastCall(rank, inQuestion);
  }

  /* The last call of a rank that is in none. */
  function lastCall(rank, inQuestion) {
    const found = [];
    for (const member of rank.members) {
      const spans = member[M.spans], at = spans.length - SPAN, group = member[M.group];
      if (at >= 0)
        found.push({text: operation(opOf(spans[at]), spans[at + 1]), age: rank.moment - spans[at + 3], group});
      else if (member[M.entered])
        found.push({text: operation(opOf(member[M.last]), member[M.entered]), age: -1, group});
    }
    found.sort((a, b) => inQuestion(b) - inQuestion(a) || (a.age < 0) - (b.age < 0) || a.age - b.age);
    return found.length ? {...found[0], text: `nothing in flight; last ${found[0].text}`} :
      {text: "no call yet", age: -1};
  }

  /* The first span that is in flight; -1 none. */
  function pendingSpan(member) {
    const spans = member[M.spans];
    for (let at = 0; at < spans.length; at += SPAN)
      if (inFlight(spans[at + 2])) return at;
    return -1;
  }

  /*
   * Ranks that are in the same place are one band: the culprits first, then by their lowest rank. `single`: every rank
   * is one; `apart`: so many culprits are.
   */
  function makeBands(single, apart) {
    const bands = new Map();
    data.ranks.forEach((rank, index) => {
      const group = data.groups[rank.activity.group], guilty = rank.culprit !== undefined;
      rank.index = index;
      rank.shape = group ? `groups of ${plural(group[2], "rank")}` : "";
      const key = single ? index : [guilty && data.verdict.culprits.length <= apart ? index : guilty, !!rank.waits,
        rank.life, rank.activity.text, rank.shape].join("\u0000");
      if (!bands.has(key)) bands.set(key, {ranks: [], guilty, waits: !!rank.waits});
      bands.get(key).ranks.push(rank);
    });
    return [...bands.values()].sort((a, b) => b.guilty - a.guilty || a.ranks[0].index - b.ranks[0].index);
  }

  const bandRanks = (band) => band.ranks[0].rank < 0 ? "unknown" : ranges(band.ranks.map((rank) => rank.rank));

  function agesText(ages) {
    const known = ages.filter((age) => age >= 0);
    if (!known.length) return "";
    const low = duration(Math.min(...known)), high = duration(Math.max(...known));
    return low === high ? low : `${low} – ${high}`;
  }

  /* ---- Verdict ---- */

  function showHead() {
    const verdict = data.verdict, kind = KINDS[verdict.kind] || verdict.kind;
    byId("job").textContent = data.job ? `job ${data.job}` : "";
    if (data.end_unix_ms > 0)
      byId("when").textContent = new Date(data.end_unix_ms).toISOString().replace("T", " ").replace(/\.\d+Z$/, " UTC");
    document.title = `${kind}${data.job ? ` – ${data.job}` : ""} – ncclguard`;
  }

  /* Culprits of which the same is said, in one: [[culprit, …], …]. */
  function alikeCulprits() {
    const found = new Map();
    for (const culprit of data.verdict.culprits) {
      const key = culprit.rank >= 0 ? culprit.why : found.size;
      found.set(key, [...found.get(key) || [], culprit]);
    }
    return [...found.values()];
  }

  function culpritLine(culprits) {
    const {rank, group_rank, host, pid, why} = culprits[0];
    const look = data.look_at.find((line) => line[0] === rank);
    const hosts = [...new Set(culprits.map((culprit) => culprit.host).filter(Boolean))];
    const where = [hosts.length > 1 ? plural(hosts.length, "host") : host && `host ${host}`,
      culprits.length === 1 && pid && `pid ${pid}`].filter(Boolean).join(", ");
    return make("div", {class: "culprit"},
      make("b", {}, culprits.length > 1 ? `ranks ${ranges(culprits.map((culprit) => culprit.rank))}` :
        rank >= 0 ? `rank ${rank}` : group_rank >= 0 ? `group rank ${group_rank}` : "a rank not known"),
      make("span", {class: "who"}, where), make("div", {}, why), look && make("code", {class: "look"}, look[1]));
  }

  /* The first of a long list, and a button for the rest. */
  function shortened(parent, items, most, word) {
    parent.append(...items.slice(0, most).map((item) => item()));
    if (items.length <= most) return parent;
    const button = make("button", {type: "button", class: "text", click: () => {
      button.replaceWith(...items.slice(most).map((item) => item()));
    }}, `${plural(items.length - most, `more ${word}`)} …`);
    parent.append(button);
    return parent;
  }

  function fact(name, value, more) {
    return value ? make("div", {}, make("h3", {}, name), make("b", {}, value), more && make("small", {}, more)) : null;
  }

  /* What stands in backticks is for typing. */
  const worded = (text) => text.split("`").map((part, i) => i % 2 ? make("code", {}, part) : part);

  function list(title, items, kind) {
    return items.length ? make("div", {}, make("h3", {}, title),
      make(kind, {}, items.map((item) => make("li", {}, item)))) : null;
  }

  /* "rank 2 last called AllReduce #19 from train < main". */
  function callLine(call) {
    return `rank ${call.rank} ${call.waits ? "waits in" : "last called"} ` +
      `${call.op ? operation(call.op, call.seq) : "NCCL"}${call.waits ? ", called" : ""} from ${call.from}`;
  }

  function rehearsalLine(injected) {
    return `${injected.rank >= 0 ? `rank ${injected.rank}: ` : ""}${injected.fault}` +
      `${injected.times > 1 ? `, ${injected.times} times` : ""}, at ${operation(injected.op, injected.seq)}`;
  }

  function showVerdict() {
    const verdict = data.verdict, box = byId("verdict"), healthy = verdict.kind === "healthy";
    const sure = {certain: "the evidence leaves no other explanation", likely: "the evidence points there",
      unknown: "the evidence does not say"};
    box.className = healthy ? "good" : verdict.confidence === "unknown" || verdict.kind === "unknown" ? "warn" : "bad";
    box.append(make("h1", {}, KINDS[verdict.kind] || verdict.kind), make("p", {class: "what"}, verdict.text));
    if (!healthy && !verdict.culprits.length) box.append(make("p", {class: "dim"}, "No rank stands out."));
    shortened(box, alikeCulprits().map((culprits) => () => culpritLine(culprits)), 6, "line");
    const inGroup = verdict.group &&
      `${verdict.group_name || `group ${verdict.group}`}, ${plural(verdict.nranks, "rank")}`;
    box.append(make("div", {class: "facts"},
      fact("Operation", verdict.op ? operation(verdict.op, verdict.seq) : inGroup, verdict.op && inGroup),
      !healthy && fact(verdict.kind === "straggler" ? "Each time" : "Stuck for", duration(verdict.stalled)),
      verdict.waiting.length > 0 && fact("Waiting", plural(verdict.waiting.length, "rank"), ranges(verdict.waiting)),
      fact("Confidence", verdict.confidence, healthy ? null : sure[verdict.confidence]),
      fact("Ranks seen", String(data.ranks.filter((rank) => rank.host !== undefined).length),
        plural(data.hosts.length, "host")),
      verdict.detected_by >= 0 && fact("Noticed by", `rank ${verdict.detected_by}`),
      verdict.action && verdict.action !== "none" && fact("Action", verdict.action)));
    const steps = verdict.cycle.map((step) => `rank ${step.rank} is in ${operation(step.op, step.seq)} of ` +
      `${step.group_name || `group ${step.group}`}, which ` +
      (step.queued ? `is queued on the device of rank ${step.waits_for_rank}` : `needs rank ${step.waits_for_rank}`));
    const below = [list("The cycle", steps, "ol"), list("Where NCCL was called", verdict.calls.map(callLine), "ul"),
      list("A rehearsal: injected by NCCLGUARD_FAULT", verdict.rehearsal.map(rehearsalLine), "ul"),
      list("What the driver knows of the devices", verdict.devices, "ul"),
      list("What to look at next", data.advice.map(worded), "ol"),
      list("Not known", verdict.missing, "ul")].filter(Boolean);
    if (below.length) box.append(make("div", {class: "columns"}, below));
  }

  /* ---- Tables ---- */

  function table(element, heads, rows, most = 200) {
    const body = make("tbody");
    element.replaceChildren(make("thead", {}, make("tr", {}, heads.map((head) =>
      make("th", head.number ? {class: "number"} : {}, head.name || head)))), body);
    const add = (from, to) => body.append(...rows.slice(from, to).map((row) => row()));
    add(0, most);
    if (rows.length > most) {
      const button = make("button", {type: "button", class: "text", click: () => {
        button.closest("tr").remove();
        add(most);
      }}, `${plural(rows.length - most, "more row")} …`);
      body.append(make("tr", {}, make("td", {colspan: heads.length}, button)));
    }
    return element;
  }

  function lifeTag(rank) {
    if (rank.host === undefined) return make("span", {class: "tag warn"}, "not seen");
    const ended = rank.life_age > 0 ? ` ${duration(rank.life_age)} ago` : "";
    const exit = rank.exit !== undefined && rank.exit >= 0 ? `, status ${rank.exit}` : "";
    const tone = {running: "good", dead: "bad", lost: "bad", stopped: "bad", exited: "warn"}[rank.life] || "";
    return make("span", {class: `tag ${tone}`}, rank.life.replace(/_/g, " ") + exit + ended);
  }

  function hostsText(ranks) {
    const hosts = [...new Set(ranks.filter((rank) => rank.host !== undefined).map((rank) => data.hosts[rank.host][0]))];
    return hosts.length > 3 ? plural(hosts.length, "host") : hosts.join(", ");
  }

  function showBands(bands) {
    table(byId("bands"), ["Ranks", {name: "How many", number: true}, "Is in", "Group", "Since", "Process", "Host"],
      bands.map((band) => () => make("tr", {class: band.guilty ? "culprit-row" : ""},
        make("td", {class: "ranks"}, bandRanks(band)),
        make("td", {class: "number"}, String(band.ranks.length)),
        make("td", {}, band.ranks[0].activity.text, " ",
          band.guilty ? make("span", {class: "tag bad"}, "culprit") :
            band.waits && make("span", {class: "tag warn"}, "waits")),
        make("td", {class: "dim"}, groupsText(band.ranks)),
        make("td", {class: "nowrap"}, agesText(band.ranks.map((rank) => rank.activity.age))),
        make("td", {class: "nowrap"}, lifeTag(band.ranks[0])),
        make("td", {class: "dim"}, hostsText(band.ranks)))));
  }

  /* Every mismatch of the evidence: that of the verdict, and others. */
  function showMismatches() {
    if (!data.mismatches.length) return;
    byId("mismatches-section").hidden = false;
    table(byId("mismatches"), ["Operation", "Group", "Ranks", "What differs", {name: "How many calls", number: true},
      "Confidence"], data.mismatches.map((report) => () => make("tr", {},
      make("td", {class: "nowrap"}, operation(report.op, report.seq)), make("td", {class: "dim"}, groupName(report.group)),
      make("td", {class: "ranks"}, ranges(report.culprits.map(([rank]) => rank))),
      make("td", {}, report.culprits.length ? report.culprits[0][1] : ""),
      make("td", {class: "number"}, String(report.count)), make("td", {}, report.confidence))), 50);
  }

  /* Of each group that has one: that of the verdict, and others. */
  function showStragglers() {
    if (!data.stragglers.length) return;
    byId("stragglers-section").hidden = false;
    const numbers = ["Came last", "Others waited", "Of", "Altogether"].map((name) => ({name, number: true}));
    table(byId("stragglers"), ["Rank", "Group", ...numbers, "Confidence"], data.stragglers.map((late) => () =>
      make("tr", {}, make("td", {class: "ranks"}, String(late.rank)), make("td", {class: "dim"}, groupName(late.group)),
        make("td", {class: "number"}, `${late.last} of ${late.samples}`),
        make("td", {class: "number"}, duration(late.wait)), make("td", {class: "number"}, duration(late.duration)),
        make("td", {class: "number"}, duration(late.total)), make("td", {}, late.confidence))), 50);
  }

  /* Powers of two. */
  function size(bytes) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let unit = 0;
    for (; bytes >= 1024 && unit + 1 < units.length; unit++) bytes /= 1024;
    return `${bytes} ${units[unit]}`;
  }

  /* Of each group, operation and size that was measured. */
  function showDurations() {
    if (!data.durations.length) return;
    byId("durations-section").hidden = false;
    const numbers = ["Up to", "Mean", "Half within", "99% within", "Longest", "Measured"]
      .map((name) => ({name, number: true}));
    table(byId("durations"), ["Operation", "Group", ...numbers], data.durations.map((took) => () => make("tr", {},
      make("td", {class: "nowrap"}, took.op === "GroupEnd" ? "NCCL group" : took.op),
      make("td", {class: "dim"}, groupName(took.group)), make("td", {class: "number"}, size(took.size)),
      [took.mean, took.p50, took.p99, took.max].map((time) => make("td", {class: "number"}, duration(time))),
      make("td", {class: "number"}, String(took.count)))), 50);
  }

  function groupsText(ranks) {
    const groups = [...new Set(ranks.map((rank) => rank.activity.group).filter((group) => group >= 0))];
    if (groups.length > 1) return `${groups.length} ${ranks[0].shape}`;
    return groups.length ? groupName(groups[0]) : "";
  }

  /* Members of a group by what they tell: those that tell the same are one row. */
  function groupRows(group) {
    const rows = new Map();
    for (const {rank, member} of group.members) {
      const known = member[M.last] >= 0 && data.signatures[member[M.last]];
      const last = member[M.entered] && known ? `${known[0]}, ${signatureText(member[M.last])}` : "";
      const key = [member[M.state], ...member.slice(M.entered, M.last), last, member[M.pendingSeq],
        member[M.pendingStarted], rank.culprit !== undefined, rank.life].join("\u0000");
      if (!rows.has(key)) rows.set(key, {member, rank, last, ranks: [], ages: []});
      rows.get(key).ranks.push(rank.rank);
      rows.get(key).ages.push(member[M.pendingAge]);
    }
    return [...rows.values()];
  }

  function collectGroups() {
    const groups = data.groups.map(([id, name, nranks, version], index) =>
      ({id, name, nranks, version, index, members: []}));
    for (const rank of data.ranks)
      for (const member of rank.members)
        groups[member[M.group]].members.push({rank, member});
    for (const group of groups) {
      group.rows = groupRows(group);
      group.front = group.members.reduce((most, {member}) => Math.max(most, member[M.entered]), 0);
      group.pending = group.members.filter(({member}) => member[M.pendingAge] >= 0).length;
      group.behind = group.members.filter(({member}) => member[M.entered] < group.front).length;
      group.inQuestion = group.id === data.verdict.group;
    }
    return groups;
  }

  /* Groups where nothing is to be seen and that are alike in size and progress are told together. */
  function showGroups() {
    const groups = collectGroups(), calm = new Map(), shown = [];
    for (const group of groups) {
      if (group.inQuestion || group.pending || group.behind || groups.length <= 12) {
        shown.push(group);
      } else {
        const key = `${group.nranks}/${group.front}/${group.rows.map((row) => row.member[M.state])}`;
        if (!calm.has(key)) calm.set(key, []);
        calm.get(key).push(group);
      }
    }
    shown.sort((a, b) => b.inQuestion - a.inQuestion || b.pending - a.pending || b.nranks - a.nranks);
    const box = byId("groups");
    if (!groups.length) box.append(make("p", {class: "dim"}, "No communicator was seen."));
    shortened(box, shown.map((group) => () => groupDetails(group)), 40, "group");
    for (const those of calm.values())
      box.append(make("details", {}, make("summary", {}, make("b", {}, those.length === 1 ? groupName(those[0].index) :
        `${plural(those.length, "group")} of ${plural(those[0].nranks, "rank")}`),
        make("span", {class: "dim"}, `nothing in flight, all at #${those[0].front}`)),
      make("div", {class: "scroll"}, table(make("table"), ["Group", "Name", {name: "Ranks seen", number: true}],
        those.map((group) => () => make("tr", {}, make("td", {class: "mono"}, group.id), make("td", {}, group.name),
          make("td", {class: "number"}, `${group.members.length} of ${group.nranks}`)))))));
  }

  function groupDetails(group) {
    const summary = make("summary", {}, make("b", {}, group.name || `group ${group.id}`),
      make("span", {class: "dim"}, plural(group.nranks, "rank")),
      group.inQuestion && make("span", {class: "tag bad"}, "in question"),
      group.pending ? make("span", {class: "tag warn"}, `${group.pending} waiting`) : null,
      group.behind ? make("span", {class: "tag bad"}, `${group.behind} behind #${group.front}`) : null,
      group.members.length < group.nranks &&
        make("span", {class: "tag"}, `${group.nranks - group.members.length} not seen`));
    const registered = data.groups[group.index][4];
    const heads = ["Ranks", {name: "How many", number: true}, "State", {name: "Entered", number: true},
      {name: "Started", number: true}, {name: "Completed", number: true}, {name: "Sends, receives", number: true},
      "Last call", "In flight"];
    const rows = group.rows.map((row) => () => {
      const member = row.member, p2p = member[M.p2pEntered];
      return make("tr", {class: row.rank.culprit !== undefined ? "culprit-row" : ""},
        make("td", {class: "ranks"}, ranges(row.ranks)), make("td", {class: "number"}, String(row.ranks.length)),
        make("td", {}, make("span", {class: `tag ${member[M.asyncError] ? "bad" : ""}`},
          member[M.state] + (member[M.asyncError] ? `, ${member[M.asyncError]}` : ""))),
        make("td", {class: "number"}, `#${member[M.entered]}`), make("td", {class: "number"}, `#${member[M.started]}`),
        make("td", {class: "number"}, `#${member[M.completed]}`),
        make("td", {class: "number"}, p2p ? `${member[M.p2pCompleted]} of ${p2p}` : ""),
        make("td", {class: "dim"}, row.last),
        make("td", {class: "nowrap"}, member[M.pendingAge] < 0 ? "" :
          (member[M.pendingSeq] ? `#${member[M.pendingSeq]} ` : "") +
          `${member[M.pendingStarted] ? "on the device" : "queued"}, ${agesText(row.ages)}`));
    });
    return make("details", group.inQuestion || data.groups.length === 1 ? {open: ""} : {}, summary,
      registered && make("p", {class: "dim"}, `Registered: ${registered}`),
      make("div", {class: "scroll"}, table(make("table"), heads, rows, 100)));
  }

  /* ---- Stacks and evidence ---- */

  function showStacks() {
    if (!data.stacks.length) return;
    const guilty = new Set(data.verdict.culprits.map((culprit) => culprit.rank));
    const box = byId("stacks"), stacks = data.stacks.map((stack) =>
      ({...stack, guilty: stack.ranks.some((rank) => guilty.has(rank))}));
    /* What the culprits alone are in comes first. */
    const own = (stack) => stack.title.includes("\"ncclguard");
    stacks.sort((a, b) => own(a) - own(b) || b.guilty - a.guilty || a.ranks.length - b.ranks.length);
    const all = make("div"), show = (word) => {
      const those = stacks.filter((stack) => !word || stack.title.includes(word) || stack.text.includes(word));
      all.replaceChildren();
      shortened(all, those.map((stack, place) => () =>
        make("details", stack.guilty && place < 2 || word && place < 5 ? {open: ""} : {},
          make("summary", {}, make("b", {}, `${stack.ranks.length === 1 ? "rank" : "ranks"} ${ranges(stack.ranks)}`),
            stack.guilty && make("span", {class: "tag bad"}, "culprit"), make("span", {}, stack.title),
            stack.threads > stack.ranks.length && make("span", {class: "tag"}, plural(stack.threads, "thread"))),
          make("pre", {}, stack.text))), 60, "stack");
      if (!those.length) all.append(make("p", {class: "dim"}, "No stack has this text."));
    };
    byId("stacks-section").hidden = false;
    box.append(make("input", {type: "search", placeholder: "Functions, files, threads …",
      "aria-label": "Search stacks", input: (event) => show(event.target.value)}), all);
    show("");
  }

  function showEvidence() {
    const box = byId("evidence");
    const clock = ([, , samples, offset, scatter, applied]) => !samples ? "taken as it is" :
      `${offset >= 0 ? "+" : "−"}${duration(Math.abs(offset))} by ${plural(samples, "collective")}, give or take ` +
      `${duration(scatter)}; ${applied ? "corrected" : "within the noise, taken as it is"}`;
    box.append(make("div", {class: "scroll"}, table(make("table"), ["Host", {name: "Processes", number: true}, "Clock"],
      data.hosts.slice().sort((a, b) => b[5] - a[5]).map((host) => () => make("tr", {},
        make("td", {}, host[0] || "not known"), make("td", {class: "number"}, String(host[1])),
        make("td", {class: "dim"}, clock(host)))), 8)));
    const notes = data.notes.slice();
    if (data.mismatches_left_out) notes.push(`${plural(data.mismatches_left_out, "more mismatch", "more mismatches")}`);
    if (data.left_out) notes.push(`${plural(data.left_out, "older record")} left out of the timeline`);
    if (notes.length) box.append(make("ul", {}, notes.map((note) => make("li", {}, note))));
    byId("foot").textContent = `ncclguard ${data.version} · ${data.verdict.line}`;
  }

  /* ---- Timeline: what is drawn ---- */

  const GUTTER = 176, AXIS = 30, RIGHT = 14, PAD = 4;
  const chart = {bands: [], height: 0, map: null, from: 0, to: 1, squeeze: true, width: 0, colours: {}};

  /* All spans of a rank, flat: begin, end, entered, state, signature, seq, lane. */
  function flatten(rank) {
    const spans = [];
    const busy = rank.members.filter((member) => member[M.spans].length || member[M.pendingAge] >= 0);
    rank.lanes = Math.max(1, Math.min(busy.length, 6));
    busy.forEach((member, place) => {
      const from = member[M.spans], lane = Math.min(place, rank.lanes - 1);
      for (let at = 0; at < from.length; at += SPAN) {
        const entered = from[at + 3], begin = entered + from[at + 4];
        spans.push({begin, end: begin + from[at + 5], entered, state: from[at + 2], signature: from[at],
          seq: from[at + 1], group: member[M.group], lane});
      }
      if (pendingSpan(member) < 0 && member[M.pendingAge] >= 0)
        spans.push({begin: rank.moment - member[M.pendingAge], end: rank.moment,
          entered: rank.moment - member[M.pendingAge], state: member[M.pendingStarted] ? DEVICE : QUEUED,
          signature: member[M.pendingSeq] === member[M.entered] ? member[M.last] : -1, seq: member[M.pendingSeq],
          group: member[M.group], lane});
    });
    for (const [op, group, , seq, age] of rank.calls || [])
      if (!spans.some((span) => inFlight(span.state) && span.group === group && span.seq === seq))
        spans.push({begin: rank.moment - age, end: rank.moment, entered: rank.moment - age, state: CALLED,
          signature: -1, op, seq, group, lane: 0});
    const awaited = rank.culprit !== undefined && data.verdict.stalled > 0 && data.verdict.kind !== "straggler";
    if (awaited && !spans.some((span) => inFlight(span.state))) {
      const since = data.verdict.since;
      spans.push({begin: since, end: data.length, entered: since, state: FAILED, signature: -1,
        op: "awaited by the others", seq: 0, group: -1, lane: 0, absent: true});
    }
    /* What is in flight lies on top, and what holds it up above all. */
    const level = {[CALLED]: 1, [QUEUED]: 2, [DEVICE]: 3};
    spans.sort((a, b) => (level[a.state] || 0) - (level[b.state] || 0) || a.begin - b.begin);
    /* Bounds of several that were seen together overlap: each is drawn up to where the next may have begun. */
    const next = new Map();
    for (let i = spans.length - 1; i >= 0; i--) {
      const span = spans[i], behind = next.get(span.lane);
      const cut = behind && !inFlight(span.state) && behind.begin < span.end;
      span.shown = cut ? Math.max(behind.begin, span.begin) : span.end;
      if (!inFlight(span.state)) next.set(span.lane, span);
    }
    rank.spans = spans;
  }

  const rowHeight = (rank) => rank.lanes > 1 ? 8 + (rank.lanes > 3 ? 11 : 14) * rank.lanes : 24;

  function layOut() {
    let y = PAD;
    for (const band of chart.bands) {
      band.y = y;
      band.single = band.ranks.length === 1;
      if (band.single) band.height = rowHeight(band.ranks[0]);
      else if (band.open) band.height = 22 + band.ranks.length * 16;
      else band.height = Math.max(34, Math.min(200, band.ranks.length * 2));
      y += band.height + 6;
    }
    chart.height = y + PAD;
  }

  /*
   * Time on the screen. Where for long nothing begins or ends, which is what a hang looks like, the axis is squeezed:
   * so the calls before it and the wait itself are seen together. A gap is at most a share of the whole.
   */
  function makeMap() {
    const moments = new Set([0, data.length]);
    for (const rank of data.ranks)
      for (const span of rank.spans) moments.add(span.begin).add(span.end).add(span.entered);
    const at = [...moments].filter((moment) => moment >= 0 && moment <= data.length).sort((a, b) => a - b);
    const gaps = at.slice(1).map((moment, i) => moment - at[i]);
    let most = Infinity;
    if (chart.squeeze) {
      const sorted = gaps.slice().sort((a, b) => a - b);
      let sum = 0;
      most = 0;
      /* The largest M with M <= a quarter of the sum of min(gap, M). */
      sorted.forEach((gap, i) => {
        const longer = sorted.length - i;
        if (gap <= (sum + gap * longer) / 4) most = gap;
        else if (longer < 4) most = Math.max(most, sum / (4 - longer));
        sum += gap;
      });
      most = Math.max(most, 1);
    }
    const shown = [0], breaks = [];
    gaps.forEach((gap, i) => {
      const width = Math.min(gap, most);
      if (gap > width * 1.5) breaks.push({from: at[i], to: at[i + 1]});
      shown.push(shown[i] + width);
    });
    chart.map = {at, shown, breaks, total: shown[shown.length - 1] || 1};
    chart.from = 0;
    chart.to = chart.map.total;
  }

  function place(list, value) {
    let low = 0, high = list.length - 1;
    while (low < high) {
      const middle = low + high + 1 >> 1;
      if (list[middle] <= value) low = middle;
      else high = middle - 1;
    }
    return Math.min(low, Math.max(0, list.length - 2));
  }

  function convert(from, to, value) {
    const i = place(from, value), step = from[i + 1] - from[i];
    return step > 0 ? to[i] + (value - from[i]) / step * (to[i + 1] - to[i]) : to[i] || 0;
  }

  const onScreen = (us) => convert(chart.map.at, chart.map.shown, us);
  const inTime = (shown) => convert(chart.map.shown, chart.map.at, shown);
  const xOf = (us) => GUTTER + (onScreen(us) - chart.from) / (chart.to - chart.from) * (chart.width - GUTTER - RIGHT);
  const shownAt = (x) => chart.from + (x - GUTTER) / (chart.width - GUTTER - RIGHT) * (chart.to - chart.from);

  /* ---- Timeline: drawing ---- */

  function readColours() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    for (const name of ["card", "line", "soft", "text", "dim", "faint", "bad", "wait", "queue", "call", "bad-back"])
      chart.colours[name] = colour(name);
    chart.colours.ops = OPS.map((_, i) => colour(`op${i}`));
    chart.colours.other = colour("op5");
  }

  const opColour = (op) => chart.colours.ops[OPS.indexOf(op)] || chart.colours.other;
  const spanOp = (span) => span.op || opOf(span.signature);

  function spanColour(span) {
    switch (span.state) {
    case DEVICE: return chart.colours.wait;
    case QUEUED: return chart.colours.queue;
    case CALLED: return chart.colours.call;
    case FAILED: return chart.colours.bad;
    default: return opColour(spanOp(span));
    }
  }

  function fit(canvas, width, height) {
    const scale = window.devicePixelRatio || 1;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    const context = canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    return context;
  }

  function hatch(context, x, y, width, height, colour) {
    context.save();
    context.beginPath();
    context.rect(x, y, width, height);
    context.clip();
    context.globalAlpha = 0.16;
    context.fillStyle = colour;
    context.fillRect(x, y, width, height);
    context.globalAlpha = 0.75;
    context.strokeStyle = colour;
    context.lineWidth = 1.5;
    context.beginPath();
    for (let at = x - height; at < x + width; at += 7) {
      context.moveTo(at, y + height);
      context.lineTo(at + height, y);
    }
    context.stroke();
    context.restore();
  }

  /* The text inside a box, cut to its width; nothing where nothing fits. */
  function label(context, text, x, y, width, colour, font) {
    if (width < 24) return;
    context.font = font || "11px system-ui, sans-serif";
    context.fillStyle = colour;
    context.textBaseline = "middle";
    let cut = text;
    while (cut && context.measureText(cut === text ? cut : `${cut}…`).width > width - 8)
      cut = cut.slice(0, cut.length > 24 ? cut.length >> 1 : -1);
    if (cut.length > 1 || cut === text) context.fillText(cut === text ? cut : `${cut}…`, x + 4, y);
  }

  /* A text on a patch of its own, for it stands on stripes. */
  function tag(context, text, x, y, width) {
    context.font = "600 11px system-ui, sans-serif";
    const wide = context.measureText(text).width + 12;
    if (wide + 8 > width) return;
    context.fillStyle = chart.colours.card;
    context.fillRect(x + 4, y - 8, wide, 16);
    context.fillStyle = chart.colours.bad;
    context.textBaseline = "middle";
    context.fillText(text, x + 10, y + 0.5);
  }

  const spanText = (span) => {
    const op = operation(spanOp(span), isP2p(spanOp(span)) ? 0 : span.seq);
    if (span.absent) return `${op}, ${duration(span.end - span.begin)}`;
    return inFlight(span.state) ? `${op} – ${duration(span.end - span.begin)}` : op;
  };

  function drawRank(context, rank, y, height, texts) {
    const lanes = texts && rank.lanes > 1 && height >= 8 * rank.lanes ? rank.lanes : 1, each = height / lanes;
    const right = chart.width - RIGHT;
    let covered = -1;
    for (const span of rank.spans) {
      const begin = xOf(span.begin), end = xOf(span.shown);
      if (end < GUTTER || begin > right) continue;
      const left = Math.max(begin, GUTTER), width = Math.max(Math.min(end, right) - left, 1);
      const spread = lanes > 1 && !span.absent;
      const top = y + (spread ? span.lane * each : 0), tall = spread ? each - 2 : height;
      if (!texts && !inFlight(span.state) && width <= 1 && Math.floor(left) === covered) continue;
      covered = Math.floor(left);
      if (texts && span.entered < span.begin) {
        const entered = Math.max(xOf(span.entered), GUTTER);
        context.fillStyle = chart.colours.faint;
        if (left - entered > 1) context.fillRect(entered, top + tall - 1, left - entered, 1);
      }
      if (span.absent) {
        hatch(context, left, top, width, tall, chart.colours.bad);
      } else {
        context.fillStyle = spanColour(span);
        context.globalAlpha = span.state === POINT ? 0.5 : span.state === BOUNDS ? 0.75 : 1;
        context.fillRect(left, top, width > 3 ? width - 0.6 : width, tall);
        context.globalAlpha = 1;
      }
      if (texts && span.absent) {
        tag(context, spanText(span), left, top + tall / 2, width);
      } else if (texts && tall >= 9) {
        const dark = inFlight(span.state) ? "#241a05" : "#ffffff";
        label(context, spanText(span), left, top + tall / 2 + 0.5, width, span.state === QUEUED &&
          document.documentElement.dataset.theme === "dark" ? "#fff3d8" : dark);
      }
    }
  }

  function drawGutter(context, band, top) {
    const first = band.ranks[0], colour = band.guilty ? chart.colours.bad : chart.colours.text;
    const bold = "600 12px system-ui, sans-serif";
    if (band.single) {
      const host = first.host !== undefined ? data.hosts[first.host][0] : "";
      label(context, rankText(first), 10, top + Math.min(band.height, 24) / 2, 80, colour, bold);
      label(context, host, 78, top + Math.min(band.height, 24) / 2, GUTTER - 84, chart.colours.dim);
      return;
    }
    context.fillStyle = chart.colours.faint;
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.fillText(band.open ? "▾" : "▸", 12, top + 10);
    label(context, plural(band.ranks.length, "rank"), 22, top + 10, GUTTER - 30, colour, bold);
    if (!band.open) label(context, bandRanks(band), 22, top + 25, GUTTER - 30, chart.colours.dim);
  }

  function drawBand(context, band, scroll, visible) {
    const top = band.y - scroll;
    if (top > visible || top + band.height < 0) return;
    drawGutter(context, band, top);
    if (band.single) {
      drawRank(context, band.ranks[0], top + 3, band.height - 6, true);
    } else if (band.open) {
      const first = Math.max(0, Math.floor((-top - 22) / 16)), last = Math.ceil((visible - top - 22) / 16);
      for (let i = first; i < Math.min(band.ranks.length, last); i++) {
        const y = top + 22 + i * 16;
        label(context, rankText(band.ranks[i]), 22, y + 8, 100, chart.colours.dim);
        drawRank(context, band.ranks[i], y + 2, 12, true);
      }
    } else {
      /* Whole lines of the screen's own pixels: as many as there are ranks, or as fit. */
      const scale = window.devicePixelRatio || 1, height = Math.floor(band.height * scale);
      const first = Math.round(top * scale), lines = Math.min(band.ranks.length, height);
      for (let i = 0; i < lines; i++) {
        const y = Math.round(i * height / lines), next = Math.round((i + 1) * height / lines);
        drawRank(context, band.ranks[Math.floor(i * band.ranks.length / lines)], (first + y) / scale,
          (next - y) / scale, false);
      }
    }
  }

  function nice(value) {
    const power = 10 ** Math.floor(Math.log10(value));
    return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= value) || power;
  }

  function tickText(us, step) {
    if (Math.abs(us) < step / 2) return "0";
    const size = Math.max(Math.abs(us), step), unit = size >= 1e6 ? [1e6, "s"] : size >= 1e3 ? [1e3, "ms"] : [1, "µs"];
    const digits = Math.max(0, Math.min(6, -Math.floor(Math.log10(step / unit[0]) + 1e-9)));
    return `−${(Math.abs(us) / unit[0]).toFixed(digits)} ${unit[1]}`;
  }

  /* Ticks count back from the end, which is the moment at which the job was looked at. */
  function ticks() {
    const found = [], perPixel = (chart.to - chart.from) / (chart.width - GUTTER - RIGHT), step = nice(perPixel * 110);
    const breaks = chart.map.breaks, begin = inTime(chart.from), end = inTime(chart.to);
    const inBreak = (us) => breaks.some((gap) => us > gap.from && us < gap.to);
    let from = begin;
    for (const gap of [...breaks, {from: data.length, to: data.length}]) {
      const to = Math.min(gap.from, end), first = Math.ceil((from - data.length) / step) * step + data.length;
      for (let us = first, many = 0; us <= to && many < 200; us += step, many++)
        if (us >= begin && !inBreak(us)) found.push({us, text: tickText(us - data.length, step)});
      from = Math.max(from, gap.to);
    }
    return found;
  }

  function drawAxis() {
    const context = fit(byId("axis"), chart.width, AXIS), colours = chart.colours;
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    let taken = GUTTER - 4;
    for (const gap of chart.map.breaks) {
      const left = Math.max(xOf(gap.from), GUTTER), right = Math.min(xOf(gap.to), chart.width - RIGHT);
      if (right - left < 8) continue;
      context.fillStyle = colours.soft;
      context.fillRect(left, 0, right - left, AXIS);
      label(context, `⋯ ${duration(gap.to - gap.from)} ⋯`, Math.max(left, (left + right) / 2 - 40), AXIS / 2 - 2,
        right - left, colours.dim);
    }
    for (const tick of ticks()) {
      const x = xOf(tick.us), wide = context.measureText(tick.text).width;
      const left = Math.min(Math.max(x - wide / 2, taken), chart.width - wide - 4);
      context.fillStyle = colours.faint;
      context.fillRect(x, AXIS - 5, 1, 5);
      if (left < taken || left > x) continue;
      context.fillStyle = colours.dim;
      context.fillText(tick.text, left, AXIS / 2 - 2);
      taken = left + wide + 10;
    }
    label(context, "time before the end", 10, AXIS / 2 - 2, GUTTER - 16, colours.faint);
  }

  function draw() {
    const rows = byId("rows"), visible = rows.clientHeight, scroll = rows.scrollTop;
    const context = fit(byId("chart"), chart.width, visible), colours = chart.colours;
    for (const gap of chart.map.breaks) {
      const left = Math.max(xOf(gap.from), GUTTER), right = Math.min(xOf(gap.to), chart.width - RIGHT);
      context.fillStyle = colours.soft;
      if (right > left) context.fillRect(left, 0, right - left, visible);
    }
    context.fillStyle = colours.line;
    for (const tick of ticks()) context.fillRect(Math.round(xOf(tick.us)), 0, 1, visible);
    for (const band of chart.bands) drawBand(context, band, scroll, visible);
    context.fillStyle = colours.line;
    context.fillRect(GUTTER - 1, 0, 1, visible);
    drawAxis();
    byId("timeline").dataset.drawn = String(chart.bands.length);
  }

  let asked = false;
  function redraw() {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      draw();
    });
  }

  function resize() {
    layOut();
    byId("space").style.height = `${chart.height}px`;
    byId("rows").style.height = `${Math.min(chart.height, 620)}px`;
    chart.width = byId("rows").clientWidth;
    draw();
  }

  /* ---- Timeline: the reader's hands ---- */

  function zoom(factor, around) {
    const middle = around === undefined ? (chart.from + chart.to) / 2 : around;
    const least = chart.map.total / 1e6;
    const span = Math.max(least, Math.min(chart.map.total, (chart.to - chart.from) * factor));
    const share = (middle - chart.from) / (chart.to - chart.from);
    look(middle - span * share, span);
  }

  function look(from, span) {
    chart.from = Math.max(0, Math.min(from, chart.map.total - span));
    chart.to = chart.from + span;
    redraw();
  }

  /* {band, rank} under a point of the chart. */
  function rankAt(y) {
    const at = y + byId("rows").scrollTop;
    const band = chart.bands.find((candidate) => at >= candidate.y && at <= candidate.y + candidate.height);
    if (!band) return null;
    if (band.single) return {band, rank: band.ranks[0], top: band.y + 3, height: band.height - 6};
    const inside = band.open ? (at - band.y - 22) / 16 : (at - band.y) / band.height * band.ranks.length;
    const rank = inside < 0 ? null : band.ranks[Math.min(band.ranks.length - 1, Math.floor(inside))];
    return {band, rank, top: band.open ? band.y + 24 + Math.floor(inside) * 16 : band.y,
      height: band.open ? 12 : band.height};
  }

  function spanAt(x, y) {
    const hit = rankAt(y);
    if (!hit || !hit.rank || x < GUTTER) return hit;
    const lane = hit.rank.lanes > 1 && (hit.band.single || hit.band.open) && hit.height >= 8 * hit.rank.lanes ?
      Math.floor((y + byId("rows").scrollTop - hit.top) / (hit.height / hit.rank.lanes)) : -1;
    let best = null;
    for (const span of hit.rank.spans)
      if (x >= xOf(span.begin) - 2 && x <= xOf(span.end) + 2 && (lane < 0 || span.lane === lane)) best = span;
    return {...hit, span: best};
  }

  function tipRows(rank, span) {
    const state = {[POINT]: "end not seen", [DONE]: "completed", [BOUNDS]: "completed", [CALLED]: "in the host call",
      [QUEUED]: "queued on the stream", [DEVICE]: "on the device, not finished", [FAILED]: "failed"}[span.state];
    const rows = [["state", span.absent ? "it has not come" : state],
      ["group", span.group >= 0 ? `${groupName(span.group)}, ${plural(data.groups[span.group][2], "rank")}` : ""],
      ["called", `${duration(data.length - span.entered)} before the end`],
      ["queued for", span.begin > span.entered ? duration(span.begin - span.entered) : ""],
      [inFlight(span.state) ? "so far" : span.state === BOUNDS ? "took at most" : "took",
        span.state === POINT ? "" : duration(span.end - span.begin)],
      ["with", span.signature >= 0 ? signatureText(span.signature) : ""],
      ["process", rank.host !== undefined ? `${data.hosts[rank.host][0]}, pid ${rank.pid}` : ""]];
    return rows.filter(([, value]) => value);
  }

  function tip(event) {
    const box = byId("chart").getBoundingClientRect(), element = byId("tip");
    const hit = spanAt(event.clientX - box.left, event.clientY - box.top);
    byId("chart").style.cursor = hit && !hit.band.single && event.clientX - box.left < GUTTER ? "pointer" : "default";
    element.hidden = !(hit && hit.rank && hit.span);
    if (element.hidden) return;
    element.replaceChildren(make("b", {}, `${rankText(hit.rank)}: ${spanText({...hit.span, state: DONE})}`),
      make("dl", {}, tipRows(hit.rank, hit.span).flatMap(([name, value]) =>
        [make("dt", {}, name), make("dd", {}, value)])));
    const width = element.offsetWidth, height = element.offsetHeight;
    element.style.left = `${Math.min(event.clientX + 14, window.innerWidth - width - 8)}px`;
    const below = event.clientY + 16;
    element.style.top = `${below + height > window.innerHeight ? event.clientY - height - 10 : below}px`;
  }

  function toggleBand(y) {
    const hit = rankAt(y);
    if (!hit || hit.band.single) return;
    hit.band.open = !hit.band.open;
    resize();
  }

  function listen() {
    const canvas = byId("chart"), where = (event) => event.clientX - canvas.getBoundingClientRect().left;
    let drag = null;
    byId("rows").addEventListener("scroll", redraw);
    window.addEventListener("resize", resize);
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey && !event.shiftKey) return;
      event.preventDefault();
      zoom(Math.exp((event.deltaY || event.deltaX) / 300), shownAt(where(event)));
    }, {passive: false});
    canvas.addEventListener("pointerdown", (event) => {
      if (where(event) < GUTTER) {
        toggleBand(event.clientY - canvas.getBoundingClientRect().top);
        return;
      }
      drag = {x: event.clientX, from: chart.from};
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!drag) {
        tip(event);
        return;
      }
      byId("tip").hidden = true;
      const perPixel = (chart.to - chart.from) / (chart.width - GUTTER - RIGHT);
      look(drag.from - (event.clientX - drag.x) * perPixel, chart.to - chart.from);
    });
    canvas.addEventListener("pointerup", () => { drag = null; });
    canvas.addEventListener("pointercancel", () => { drag = null; });
    canvas.addEventListener("pointerleave", () => { byId("tip").hidden = true; });
    canvas.addEventListener("dblclick", (event) => {
      if (where(event) >= GUTTER) zoom(0.25, shownAt(where(event)));
    });
    byId("timeline").addEventListener("keydown", (event) => {
      const span = chart.to - chart.from;
      const keys = {"+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), "0": () => look(0, chart.map.total),
        ArrowLeft: () => look(chart.from - span / 5, span), ArrowRight: () => look(chart.from + span / 5, span)};
      if (!keys[event.key] || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      keys[event.key]();
    });
  }

  function showTools() {
    const button = (text, click, more) => make("button", {type: "button", click, ...more}, text);
    const squeeze = button("Squeeze waits", () => {
      chart.squeeze = !chart.squeeze;
      squeeze.setAttribute("aria-pressed", chart.squeeze);
      makeMap();
      redraw();
    }, {"aria-pressed": "true", title: "Draw long stretches in which nothing begins or ends shorter than they were"});
    const many = chart.bands.some((band) => band.ranks.length > 1);
    const all = button("All ranks", () => {
      const open = all.getAttribute("aria-pressed") !== "true";
      all.setAttribute("aria-pressed", open);
      for (const band of chart.bands) band.open = open;
      resize();
    }, {"aria-pressed": "false"});
    byId("tools").append(...[button("Whole", () => look(0, chart.map.total)), button("+", () => zoom(0.5)),
      button("−", () => zoom(2)), squeeze, many ? all : null].filter(Boolean),
    make("span", {class: "hint"}, "drag to move · Ctrl and wheel, or double click, to zoom" +
      (many ? " · click a band's name to open it" : "")));
  }

  function showLegend() {
    const key = (colour, text) => {
      const box = make("i");
      box.style.background = colour;
      return make("span", {}, box, text);
    };
    const done = (span) => span.state === DONE || span.state === BOUNDS;
    const ops = [...new Set(data.ranks.flatMap((rank) => rank.spans.filter(done).map(spanOp)))];
    const has = (state) => data.ranks.some((rank) => rank.spans.some((span) => span.state === state));
    byId("legend").replaceChildren(...ops.slice(0, 8).map((op) => key(opColour(op), op)),
      ...[[DEVICE, "wait", "on the device, not finished"], [QUEUED, "queue", "queued on the stream"],
        [CALLED, "call", "in the host call"], [FAILED, "bad", "failed, or awaited by the others"]]
        .filter(([state]) => has(state)).map(([, colour, text]) => key(chart.colours[colour], text)));
  }

  function showTimeline(bands) {
    chart.bands = bands;
    data.ranks.forEach(flatten);
    readColours();
    makeMap();
    showTools();
    showLegend();
    resize();
    listen();
  }

  /* ---- Light and dark ---- */

  function setTheme(theme) {
    document.documentElement.dataset.theme = theme;
    if (!chart.map) return;
    readColours();
    showLegend();
    draw();
  }

  function chooseTheme() {
    const asked = location.hash.slice(1), dark = window.matchMedia("(prefers-color-scheme: dark)");
    setTheme(["light", "dark"].includes(asked) ? asked : dark.matches ? "dark" : "light");
    byId("theme").addEventListener("click", () =>
      setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
    dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
  }

  function start() {
    chooseTheme();
    data = JSON.parse(byId("data").textContent);
    showHead();
    showVerdict();
    for (const rank of data.ranks) rank.activity = activity(rank);
    showBands(makeBands(false, 0));
    showMismatches();
    showStragglers();
    showDurations();
    if (data.ranks.length) showTimeline(makeBands(data.ranks.length <= 24, 16));
    else byId("when-section").hidden = true;
    showGroups();
    showStacks();
    showEvidence();
    document.documentElement.dataset.ready = "yes";
  }

  try {
    start();
  } catch (error) {
    byId("failure").hidden = false;
    byId("failure").textContent = `This page could not draw itself: ${error}`;
    document.documentElement.dataset.ready = "failed";
    throw error;
  }
}());

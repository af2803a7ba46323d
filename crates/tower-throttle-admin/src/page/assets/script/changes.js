// Changes: each asks in a dialog, and says what was before and after where it was asked.

const FOR = { name: "for", label: "For", value: "1h", required: true, choices: ["15m", "1h", "1d", "7d"], note: "From now: 90s, 15m, 1h, 7d, 2w" };
const REASON = { name: "reason", label: "Reason", required: true, note: "For others: a ticket, a symptom" };
const LABEL = { name: "label", label: "Name of the caller", note: "For people, as Example Inc.: of the key, only a hash is kept" };

const CHANGES = {
  reset: {
    text: "Reset…", title: "Reset the bucket", submit: "Reset",
    about: "The bucket is full again at once. A ban by the policy ends; one by an operator stays.",
  },
  ban: {
    text: "Ban…", title: "Ban the caller", submit: "Ban", fields: [FOR, REASON, LABEL],
    about: "All requests of the caller to which the policy applies are denied until the ban ends.",
  },
  unban: {
    text: "Unban…", title: "End the ban", submit: "Unban",
    about: "The caller may send requests again. A ban by the policy ends with a full bucket.",
  },
  override: {
    text: "Override…", title: "Give the caller another quota", submit: "Override",
    fields: [{ name: "quota", label: "Quota", required: true, note: "As 100 per second, burst 200" }, { ...FOR, value: "1d" }, REASON, LABEL],
    about: "It counts in place of the policy's quota. What is used stays used, but another algorithm starts full.",
  },
  "clear-override": {
    text: "Remove override…", title: "Remove the override", submit: "Remove",
    about: "The policy's quota counts again. What is used stays used, if the algorithm was the same.",
  },
};

// Describes a look-up or policies, for before and after.
function describe(state) {
  const [first] = state.policies ?? [state].flat();
  if (!first) return "not shown here";
  if (!("remaining" in first)) return `mode ${first.mode}`;
  return [first.limit === null ? "unknown" : left(first), first.quota, first.banned && "banned"].filter(Boolean).join(", ");
}

function field({ name, label, value = "", required, note, choices, options }) {
  if (options) {
    return el("fieldset", el("legend", label), options.map(([option, text, about]) => el("label.option",
      el("input", { type: "radio", name, value: option, required: true, checked: option === value }), el("span", el("b", text), " ", small(about)))));
  }
  const id = `change-${name}`;
  const input = el("input", { id, name, value, required, autocomplete: "off", maxlength: 256, "aria-describedby": `${id}-note` });
  return el("div.field", el("label", { for: id }, label, !required && small(" optional")), input,
    choices && el("p.actions", choices.map((choice) => button(choice, () => { input.value = choice; input.focus(); }))),
    small({ id: `${id}-note` }, note));
}

// Asks in a dialog and makes the change. `done` gets its outcome.
function ask({ title, subject, before, about, fields = [], submit, change, done }) {
  const problem = el("p.problem", { role: "alert" });
  const sender = el("button", { type: "submit" }, submit);
  const dialog = el("dialog", { "aria-labelledby": "change-title", close: () => dialog.remove() });
  const form = el("form", el("h2", { id: "change-title" }, title), el("p.subject", subject), el("p", about),
    before && el("p.note", "Now: ", before), fields.map(field), problem,
    el("p.actions.end", button("Cancel", () => dialog.close()), sender));
  let busy = false;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (busy) return;
    busy = true;
    setText(problem, "");
    const given = [...new FormData(form)].map(([name, value]) => [name, value.trim()]).filter(([, value]) => value);
    try {
      const outcome = await change(Object.fromEntries(given));
      dialog.close();
      done(outcome);
    } catch (error) {
      setText(problem, error.message);
    }
    busy = false;
  });
  dialog.append(form);
  document.body.append(dialog);
  dialog.showModal();
  (form.querySelector("input:checked") ?? form.querySelector("input") ?? sender).focus();
}

// Shows what a change did, and leads there. The rest of the page follows.
function showOutcome(host, submit, { changed, before, after, problem }) {
  const note = el("p.outcome", { tabindex: -1 }, el("b", `${submit}: ${changed ? "done" : "nothing was to be changed"}. `),
    changed && `Before: ${describe(before)}. After: ${describe(after)}. `,
    problem && el("span.problem", "The control document does not apply as a whole: ", foreign(problem)));
  host.replaceChildren(note);
  note.focus();
  lookAgain();
  refresh();
}

function askOfCaller(name, card) {
  const { state } = card;
  const { title, about, fields, submit } = CHANGES[name];
  const { question } = asked;
  const given = { quota: state.quota ?? "" };
  ask({
    title, submit, about, before: describe(state), fields: fields?.map((each) => ({ value: given[each.name], ...each })),
    subject: [state.shared ? "all callers" : foreign(asked.name), " in ", foreign(state.policy)],
    change: (values) => call(name, {
      caller: state.shared ? "everyone:" : question.caller, policy: state.policy, ...(name === "reset" && { limiter: state.limiter }), ...values }),
    done: (outcome) => showOutcome(card.outcome, submit, outcome),
  });
}

function askMode({ name, mode, by_hand }) {
  ask({
    title: "Change the mode", subject: foreign(name), submit: "Change", before: `mode ${mode}`,
    about: "For all processes that follow the control document, within two seconds.",
    fields: [
      { name: "mode", label: "Mode", value: mode, options: [
        ["enforce", "Enforce", "denies what has no room"], ["shadow", "Shadow", "counts, and denies nothing"], ["off", "Off", "is not asked"],
        ...(by_hand ? [["default", "As configured", "removes what was changed by hand"]] : []),
      ] },
      { ...FOR, value: "", required: false, note: "From now, as 15m, 1h, 7d. Empty: until it is removed" },
      { ...REASON, required: false },
    ],
    change: ({ mode: chosen, ...rest }) => chosen === "default" ? call("clear-mode", { policy: name }) : call("mode", { policy: name, mode: chosen, ...rest }),
    done: (outcome) => showOutcome(byId("policies-outcome"), `Mode of ${short(name)}`, outcome),
  });
}

const REMOVALS = { ban: "unban", override: "clear-override", mode: "clear-mode" };

function askRemove({ kind, policy, fingerprint: print, label }) {
  ask({
    title: `Remove: ${kind}`, subject: [label && [foreign(label), " "], print && [fingerprint(print), " in "], foreign(policy)],
    about: "What was changed by hand ends at once in this process, and within two seconds in the others.", submit: "Remove",
    change: () => call(REMOVALS[kind], { policy, ...(print && { caller: `fingerprint:${print}` }) }),
    done: (outcome) => showOutcome(byId("entries-outcome"), "Remove", outcome),
  });
}

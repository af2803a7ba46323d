// Changes: each asks in a dialog of the server, and is sent to the API.

// Opens the dialog of a button. It is about the nearest element with a policy.
function askFor(button) {
  const { change, call = change } = button.dataset;
  const item = button.closest("[data-policy]");
  const { subject, now: before, quota, mode, byHand } = item.dataset;
  const dialog = document.importNode(byId(`change-${change}`).content, true).firstElementChild;
  const find = (selector) => dialog.querySelector(selector);
  const problem = find(".problem");
  setText(find("[data-slot=subject]"), subject);
  setText(find("[data-slot=now]"), before);
  if (quota) find("[name=quota]")?.setAttribute("value", quota);
  if (byHand === undefined) find("[value=default]")?.closest("label").remove();
  find(`[name=mode][value="${mode}"]`)?.setAttribute("checked", "");
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", ({ target }) => {
    if (target.matches("[data-cancel]")) dialog.close();
    if (target.matches("[data-choice]")) {
      const input = target.closest(".field").querySelector("input");
      input.value = target.dataset.choice;
      input.focus();
    }
  });
  let busy = false;
  dialog.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (busy) return;
    busy = true;
    setText(problem, "");
    try {
      const outcome = await send(`api/v1/${pathOf(call, event.target)}`, JSON.stringify(bodyOf(call, item, event.target)));
      dialog.close();
      await showOutcome(item, find("[type=submit]").textContent, before, await outcome.json());
    } catch (error) {
      setText(problem, error.message);
    }
    busy = false;
  });
  document.body.append(dialog);
  dialog.showModal();
  (find("input:checked") ?? find("input") ?? find("[type=submit]")).focus();
}

const isDefault = (form) => form.elements.mode?.value === "default";

const pathOf = (call, form) => isDefault(form) ? "clear-mode" : call;

// Returns what is sent: the policy, the caller if there is one, and the fields that were filled in.
function bodyOf(call, { dataset: { policy, limiter, caller } }, form) {
  const given = [...new FormData(form)].map(([name, value]) => [name, value.trim()]).filter(([, value]) => value);
  return {
    policy,
    ...(caller && { caller: JSON.parse(caller) }),
    ...(call === "reset" && { limiter }),
    ...(isDefault(form) ? {} : Object.fromEntries(given)),
  };
}

// Shows what a change did, and leads there. The rest of the page follows.
async function showOutcome(item, done, before, { changed, problem }) {
  const host = byId(item.dataset.outcome);
  await refresh();
  const after = item.isConnected ? item.dataset.now : "not shown here";
  const note = el("p.outcome", { tabindex: -1 },
    el("b", {}, `${done}: ${changed ? "done" : "nothing was to be changed"}. `),
    changed ? `Before: ${before}. After: ${after}. ` : "",
    problem ? el("span.problem", {}, `The control document does not apply as a whole: ${problem}`) : "");
  host.replaceChildren(note);
  note.focus();
}

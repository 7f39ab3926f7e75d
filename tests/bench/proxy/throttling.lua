-- The Lua part of the article's throttling: fetches for the maps and for the key, the estimate of the clients, and the delay.

-- The source and a variable, as the maps have them.
core.register_fetches("thr-src-add", function(txn, name)
    return txn.sf:src() .. "+" .. (txn:get_var(name) or "")
end)

-- The parts of the key, by the thousands digit of the SLO.
local parts = {
    [0] = function() return "" end,
    function(_, _, owner) return owner end,
    function(_, website) return website end,
    function(source) return source end,
    function(source, _, owner) return source .. "+" .. owner end,
    function(source, website) return source .. "+" .. website end,
}

core.register_fetches("thr-key", function(txn, slo, website, owner)
    local kind = txn:get_var(slo) // 1000
    return kind .. parts[kind](txn.sf:src(), txn:get_var(website) or "", txn:get_var(owner) or "")
end)

-- N' = N + (rate - slo) / slo, at least 1; in thousandths of a client.
core.register_fetches("thr-clients", function(txn, slo_rate, rate, clients)
    local slo = txn:get_var(slo_rate)
    local estimate = math.max(txn:get_var(clients), 1000) + 1000 * (txn:get_var(rate) - slo) // slo
    return math.max(estimate, 1000)
end)

-- delay = N / slo * min(1, rate / slo) * jitter
core.register_action("thr-delay", { "http-req", "http-res" }, function(txn, slo_rate, rate, clients)
    local slo = txn:get_var(slo_rate)
    local share = math.min(1, txn:get_var(rate) / slo)
    core.msleep(math.floor(math.max(txn:get_var(clients), 1000) / slo * share * (0.9 + 0.2 * math.random())))
end, 3)

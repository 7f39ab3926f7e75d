-- Waits for the delay in slowlane's verdict (txn.slowlane.delay, in milliseconds). Without a verdict, it does not wait.
core.register_action("slowlane_delay", { "http-req", "http-res" }, function(txn)
    local delay = txn:get_var("txn.slowlane.delay")
    if delay and delay > 0 then
        core.msleep(delay)
    end
end)

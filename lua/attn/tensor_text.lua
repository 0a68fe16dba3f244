-- tensor_text.lua: a tensor in a few lines: type, shape, device, extremes, NaN, edge values.
--
--     f32 {2, 1000} on cpu, -3.21 to 3.11, 1 NaN
--     {{0.5, -1.25, 0.75, ..., 0.0625, 1.5, -2},
--      {nan, 0.5, 0.25, ..., 0.125, 1, 3}}

local EDGE = 3 -- of an axis longer than 2 * EDGE, so many elements of each end are shown

return function(M)
    local function number(x)
        if type(x) == 'boolean' then
            return tostring(x)
        elseif x ~= x then
            return 'nan' -- printf may write "-nan"
        end
        return ('%.5g'):format(x)
    end

    local function lines(t, indent)
        local n, parts = #t, {}
        for i = 0, n - 1 do
            if n > 2 * EDGE and i >= EDGE and i < n - EDGE then
                parts[EDGE + 1] = '...'
            else
                local part = M.element(t, i)
                parts[#parts + 1] = M.is(part) and lines(part, indent .. ' ') or number(part)
            end
        end
        local deep = #M.shape_of(t) > 1
        return '{' .. table.concat(parts, deep and ',\n' .. indent .. ' ' or ', ') .. '}'
    end

    function M.meta.__tostring(t)
        if not M.is_alive(t) then
            return 'tensor (freed)'
        end
        local shape = M.shape_of(t)
        local head = ('%s {%s} on %s'):format(t.dtype, table.concat(shape, ', '), t.device)
        if M.count_of(shape) == 0 then
            return head
        end
        local least, largest, nans = M.extremes(t)
        if least then
            head = head .. (', %s to %s'):format(number(least), number(largest))
        end
        local values = #shape == 0 and number(t:get()) or lines(M.on_host(t), '')
        return ('%s, %d NaN\n%s'):format(head, nans, values)
    end
end

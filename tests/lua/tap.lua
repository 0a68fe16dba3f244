-- tap.lua: a small test runner that prints TAP.
--
-- Who calls it: every tests/lua/*_test.lua:
--
--     local here = arg[0]:match '^(.*/)' or './'
--     package.path = here .. '?.lua;' .. here .. '../../lua/?.lua;' .. package.path
--     local test = require 'tap'
--     test('a sum', function(t)
--         t.equal(1 + 1, 2)                            -- a failing check ends its test alone
--         t.fails(function() error 'no' end, 'no')     -- the message has this text in it
--     end)
--     test.done()                                      -- "N passed, N failed"; status 1 if any
--
-- A test that checks nothing fails. An argument of the program picks the tests whose name has it.

local M = {}
local passed, failed, checks = 0, 0, 0
local only = arg[1]

-- The program that runs the test, before its own options: luajit -joff x_test.lua.
local first = 0
while arg[first - 1] do
    first = first - 1
end
M.interpreter = first < 0 and arg[first] or 'luajit'

local function show(x)
    return type(x) == 'string' and ('%q'):format(x) or tostring(x)
end

local function fail(message, ...)
    error(message:format(...), 3)
end

local t = {}

function t.ok(x, what)
    checks = checks + 1
    if not x then
        fail('%s is %s', what or 'a check', show(x))
    end
end

function t.equal(given, wanted, what)
    checks = checks + 1
    if given ~= wanted and not (given ~= given and wanted ~= wanted) then
        fail('%s is %s, not %s', what or 'the value', show(given), show(wanted))
    end
end

-- Lists of equal length with equal members, nested.
function t.same(given, wanted, what)
    checks = checks + 1
    local function compare(a, b, place)
        if type(a) == 'table' and type(b) == 'table' then
            for i = 1, math.max(#a, #b) do
                compare(a[i], b[i], ('%s[%d]'):format(place, i))
            end
        elseif a ~= b and not (a ~= a and b ~= b) then
            error(('%s is %s, not %s'):format(place, show(a), show(b)), 0)
        end
    end
    local good, why = pcall(compare, given, wanted, what or 'the list')
    if not good then
        fail('%s', why)
    end
end

function t.near(given, wanted, error_, what)
    checks = checks + 1
    local near = math.abs(given - wanted) <= error_
    if not near then -- NaN too
        fail('%s is %.17g, not %.17g within %g', what or 'the value', given, wanted, error_)
    end
end

-- f raises an error that prints with `text` (plain, not a pattern) in it; returns the error.
function t.fails(f, text)
    checks = checks + 1
    if text == nil or text == '' then
        fail('t.fails wants a part of the sentence')
    end
    local good, why = pcall(f)
    if good then
        fail('no error, but one with %s', show(text))
    elseif not tostring(why):find(text, 1, true) then
        fail('the error is %s; it lacks %s', show(tostring(why)), show(text))
    end
    return why
end

local function run(name, f)
    if only and not name:find(only, 1, true) then
        return
    end
    checks = 0
    local good, why = xpcall(function() f(t) end, function(e)
        return type(e) == 'string' and debug.traceback(e, 2) or tostring(e)
    end)
    if good and checks == 0 then
        good, why = false, 'the test checks nothing'
    end
    if good then
        passed = passed + 1
    else
        failed = failed + 1
    end
    print(('%s %d - %s'):format(good and 'ok' or 'not ok', passed + failed, name))
    if not good then
        print('# ' .. why:gsub('\n', '\n# '))
    end
end

function M.done()
    print(('1..%d'):format(passed + failed))
    print(('%d passed, %d failed'):format(passed, failed))
    io.stdout:flush()
    if failed > 0 or passed == 0 then
        os.exit(1)
    end
end

return setmetatable(M, {__call = function(_, name, f) run(name, f) end})

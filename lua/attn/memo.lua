-- memo.lua: values by lists of keys, of which those used last are kept.
--
-- Who calls it: attention.lua keeps plans so, kind.lua the kinds of tensors. A list is a path from
-- the root of a tree of tables; there are two trees:
--
--     young   a - b - c - value        a value that only `old` has is put into `young` when it is
--     old     a - b - d - value        asked for; with `most` values `young` becomes `old`, and
--                                      what was in `old` is forgotten

local M = {}

local Memo = {}
Memo.__index = Memo

-- At most twice `most` values are kept.
function M.new(most)
    return setmetatable({most = most, n = 0, young = {}, old = {}}, Memo)
end

local VALUE = {} -- the field of a tree's node that holds its value

local function find(node, keys, n)
    for i = 1, n do
        node = node[keys[i]]
        if not node then
            return nil
        end
    end
    return node[VALUE]
end

-- keys[1..n]: neither nil nor NaN.
function Memo:put(keys, n, value)
    if self.n == self.most then
        self.young, self.old, self.n = {}, self.young, 0
    end
    local node = self.young
    for i = 1, n do
        local below = node[keys[i]]
        if not below then
            below = {}
            node[keys[i]] = below
        end
        node = below
    end
    node[VALUE] = value
    self.n = self.n + 1
end

-- The value under keys[1..n], or nil.
function Memo:get(keys, n)
    local value = find(self.young, keys, n)
    if value == nil then
        value = find(self.old, keys, n)
        if value ~= nil then
            self:put(keys, n, value)
        end
    end
    return value
end

return M

-- attn.lua: lets a plain luajit that is started in this folder find the modules in lua/.
package.path = 'lua/?.lua;' .. package.path
return dofile 'lua/attn.lua'

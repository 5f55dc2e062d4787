-- Starts the server for the file that is opened, in Neovim 0.7 and later. $CITEREC: the command, as JSON.
vim.o.completeopt = "menuone,noinsert"
vim.o.swapfile = false
vim.o.hidden = true
vim.ui.select = function(items, _, choose) choose(items[1], 1) end -- the first code action

local config = {
  name = "citerec",
  cmd = vim.fn.json_decode(vim.env.CITEREC),
  root_dir = vim.fn.getcwd(),
  on_attach = function(client, buffer)
    if vim.lsp.completion then -- 0.11
      vim.lsp.completion.enable(true, client.id, buffer, { autotrigger = true })
    else
      vim.bo[buffer].omnifunc = "v:lua.vim.lsp.omnifunc"
    end
  end,
}

function StartServer()
  if vim.lsp.start then -- 0.8
    vim.lsp.start(config)
  else
    vim.lsp.buf_attach_client(0, vim.lsp.start_client(config))
  end
end

function Ready()
  local clients = (vim.lsp.get_clients or vim.lsp.get_active_clients)()
  return #clients == 1 and clients[1].initialized and 1 or 0
end

function Messages()
  return vim.tbl_map(function(one) return one.message end, vim.diagnostic.get(0))
end

vim.cmd("autocmd BufEnter *.tex ++once lua StartServer()")
